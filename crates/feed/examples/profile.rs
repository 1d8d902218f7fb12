//! Takes a profile for generated tables from a real one: `profile TABLE ORIGINS > v4.profile`. The built-in ones were made
//! from the tables labelled by 30,000 hashes of origins: `profile ris-as3333-20260511.v4.nh30000.zst 76000`.

use std::io::Write;
use tidemill_feed::synth::Profile;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(path), Some(origins)) = (args.next(), args.next()) else {
        return Err("usage: profile TABLE ORIGINS".into());
    };
    let origins = origins.parse()?;
    let table = tidemill_feed::load(path.as_ref(), &Default::default())?;
    let profile = match table.v4.is_empty() {
        true => Profile::measure(&table.v6, origins),
        false => Profile::measure(&table.v4, origins),
    };
    write!(std::io::stdout(), "{profile}")?;
    Ok(())
}
