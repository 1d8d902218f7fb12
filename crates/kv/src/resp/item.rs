//! What a whole reply says, item by item as they stand: an array is its head, then its items.

use super::integer;

/// One item, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'a> {
    /// `+`.
    Status(&'a [u8]),
    /// `-`, and `!` (RESP3).
    Error(&'a [u8]),
    /// `:`, and of RESP3 `,` `#` `(`: as it is written.
    Number(&'a [u8]),
    /// `$`, and `=` (RESP3).
    Text(&'a [u8]),
    /// `$-1`, `*-1`, and `_` (RESP3).
    Null,
    /// The type of an array, set, map, push or attribute, and its number: as many items follow, of maps and attributes twice as many.
    Many(u8, u64),
}

/// The items of a reply. They end before one that is not whole.
#[derive(Debug, Clone)]
pub struct Items<'a>(&'a [u8]);

impl<'a> Items<'a> {
    /// Those of these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Items(bytes)
    }

    /// Whether all bytes were read.
    pub fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        let (&kind, rest) = self.0.split_first()?;
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let (line, behind) = (rest.get(..end)?, rest.get(end + 2..)?);
        let (item, behind) = match kind {
            b'+' => (Item::Status(line), behind),
            b'-' => (Item::Error(line), behind),
            b':' | b',' | b'#' | b'(' => (Item::Number(line), behind),
            b'_' => (Item::Null, behind),
            b'$' | b'=' | b'!' => match usize::try_from(integer(line)?) {
                Ok(bytes) => {
                    let text = behind.get(..bytes)?;
                    let item = if kind == b'!' { Item::Error(text) } else { Item::Text(text) };
                    (item, behind.get(bytes.checked_add(2)?..)?)
                }
                Err(_) => (Item::Null, behind),
            },
            b'*' | b'~' | b'%' | b'>' | b'|' => match u64::try_from(integer(line)?) {
                Ok(number) => (Item::Many(kind, number), behind),
                Err(_) => (Item::Null, behind),
            },
            _ => return None,
        };
        self.0 = behind;
        Some(item)
    }
}

/// Writes a type and its number: `*3`, `%2`, `:7`.
pub fn head(to: &mut Vec<u8>, kind: u8, number: u64) {
    // As many digits as the largest has. By hand, for a reply has one of these for each of its pieces.
    let mut digits = [0; 20];
    let (mut from, mut left) = (digits.len(), number);
    loop {
        from -= 1;
        digits[from] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    to.push(kind);
    to.extend_from_slice(&digits[from..]);
    to.extend_from_slice(b"\r\n");
}

/// Writes a bulk string.
pub fn bulk(to: &mut Vec<u8>, text: &[u8]) {
    head(to, b'$', text.len() as u64);
    to.extend_from_slice(text);
    to.extend_from_slice(b"\r\n");
}

/// Writes an item that is a line: `+OK`, `,1.5`.
pub fn line(to: &mut Vec<u8>, kind: u8, text: &[u8]) {
    to.push(kind);
    to.extend_from_slice(text);
    to.extend_from_slice(b"\r\n");
}

/// Writes a request.
pub fn request(to: &mut Vec<u8>, words: &[&[u8]]) {
    head(to, b'*', words.len() as u64);
    words.iter().for_each(|word| bulk(to, word));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_both_versions() {
        let text =
            b"*2\r\n$2\r\n\r\n\r\n%1\r\n+a\r\n,1.5\r\n_\r\n$-1\r\n*-1\r\n-ERR x\r\n!3\r\nERR\r\n:7\r\n";
        let items = [
            Item::Many(b'*', 2),
            Item::Text(b"\r\n"),
            Item::Many(b'%', 1),
            Item::Status(b"a"),
            Item::Number(b"1.5"),
            Item::Null,
            Item::Null,
            Item::Null,
            Item::Error(b"ERR x"),
            Item::Error(b"ERR"),
            Item::Number(b"7"),
        ];
        let mut read = Items::new(text);
        assert_eq!(read.by_ref().collect::<Vec<_>>(), items);
        assert!(read.is_at_end());
        for end in 0..text.len() {
            let part: Vec<_> = Items::new(&text[..end]).collect();
            assert_eq!(part, items[..part.len()], "cut at {end}");
        }
    }

    #[test]
    fn numbers_have_all_their_digits() {
        for number in [0, 7, 10, 99, 100, 1_000_000, u64::MAX] {
            let mut text = Vec::new();
            head(&mut text, b':', number);
            assert_eq!(text, format!(":{number}\r\n").as_bytes());
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut text = Vec::new();
        request(&mut text, &[b"SET", b"", b"\r\n"]);
        line(&mut text, b',', b"inf");
        let items = [
            Item::Many(b'*', 3),
            Item::Text(b"SET"),
            Item::Text(b""),
            Item::Text(b"\r\n"),
            Item::Number(b"inf"),
        ];
        assert_eq!(Items::new(&text).collect::<Vec<_>>(), items);
    }
}
