//! Characters that only show themselves. Who sends packets, or writes names and rules, picks the others for what a terminal makes of them.

/// Whether a character moves no cursor, ends no line, turns no text around, and is seen: neither one of Unicode's controls, nor a separator of lines, nor one that only says how others
/// are shown (Unicode Technical Report 36, section 3.6).
///
/// ```
/// use tidemill_ip::plain::is_plain;
/// assert!("naïve ✓ 漢字".chars().all(is_plain));
/// assert!(!is_plain('\u{202e}'), "from right to left, from here on");
/// ```
pub fn is_plain(c: char) -> bool {
    let is_format = matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    );
    !c.is_control() && !is_format
}
