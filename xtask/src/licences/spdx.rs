//! SPDX licence expressions: `AND` binds tighter than `OR`, `WITH` adds an exception to one licence. `MIT/Apache-2.0`,
//! which older packages write, means `OR`.

/// Whether the expression can be met, given which licences (with their exceptions) can.
pub(crate) fn holds(expression: &str, allowed: &dyn Fn(&str, Option<&str>) -> bool) -> Result<bool, String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { tokens: &tokens, allowed };
    let held = parser.any()?;
    match parser.tokens.first() {
        None => Ok(held),
        Some(token) => Err(format!("unexpected {token:?}")),
    }
}

struct Parser<'a> {
    tokens: &'a [&'a str],
    allowed: &'a dyn Fn(&str, Option<&str>) -> bool,
}

impl<'a> Parser<'a> {
    fn take(&mut self) -> Option<&'a str> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        Some(first)
    }

    fn take_if(&mut self, token: &str) -> bool {
        let is = self.tokens.first() == Some(&token);
        if is {
            self.take();
        }
        is
    }

    fn any(&mut self) -> Result<bool, String> {
        let mut held = self.all()?;
        while self.take_if("OR") {
            held |= self.all()?;
        }
        Ok(held)
    }

    fn all(&mut self) -> Result<bool, String> {
        let mut held = self.one()?;
        while self.take_if("AND") {
            held &= self.one()?;
        }
        Ok(held)
    }

    fn one(&mut self) -> Result<bool, String> {
        let licence = match self.take() {
            Some("(") => {
                let held = self.any()?;
                return if self.take_if(")") { Ok(held) } else { Err("a parenthesis stays open".to_owned()) };
            }
            Some(name) if !["AND", "OR", "WITH", ")"].contains(&name) => name,
            Some(token) => return Err(format!("unexpected {token:?}")),
            None => return Err("it ends early".to_owned()),
        };
        let exception = if self.take_if("WITH") { Some(self.take().ok_or("it ends early")?) } else { None };
        Ok((self.allowed)(licence, exception))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expression: &str) -> Result<bool, String> {
        holds(expression, &|name, exception| {
            ["MIT", "ISC"].contains(&name) && exception.is_none_or(|e| e == "X")
        })
    }

    #[test]
    fn expressions_are_evaluated() {
        for (expression, expected) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("MIT OR GPL-3.0", true),
            ("GPL-3.0 OR MIT", true),
            ("GPL-3.0/MIT", true),
            ("MIT AND GPL-3.0", false),
            ("MIT AND ISC", true),
            ("GPL-3.0 OR MIT AND GPL-3.0", false),
            ("GPL-3.0 AND MIT OR ISC", true),
            ("(GPL-3.0 OR MIT) AND ISC", true),
            ("(MIT OR ISC) AND (GPL-3.0 OR GPL-2.0)", false),
            ("MIT WITH X", true),
            ("MIT WITH Y", false),
            ("MIT WITH Y OR ISC", true),
        ] {
            assert_eq!(check(expression), Ok(expected), "{expression}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for expression in ["", "MIT OR", "AND MIT", "(MIT", "MIT)", "MIT ISC", "MIT WITH", "OR"] {
            assert!(check(expression).is_err(), "{expression}");
        }
    }
}
