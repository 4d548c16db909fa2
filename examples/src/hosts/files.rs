//! Reading the small files that an operator names: certificates, keys, tokens, lists of sources.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// All bytes of a regular file of at most `limit` bytes.
///
/// # Errors
/// The file's name, and what is wrong: absent, unreadable, a directory or device, empty, too large.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>, String> {
    let error = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    // A pipe would make the open wait, a device would never end.
    let about = std::fs::metadata(path).map_err(|io| error(&io))?;
    if !about.is_file() {
        return Err(error(&"not a regular file"));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|io| error(&io))?;
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(|io| error(&io))?;
    match bytes.len() as u64 {
        0 => Err(error(&"empty")),
        len if len > limit => Err(error(&format_args!("longer than {limit} bytes"))),
        _ => Ok(bytes),
    }
}

/// [`read`], as text.
///
/// # Errors
/// As [`read`], and bytes that are no UTF-8.
pub fn read_text(path: &Path, limit: u64) -> Result<String, String> {
    String::from_utf8(read(path, limit)?).map_err(|_| format!("{}: not text", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_small_file_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        assert_eq!(read(&file("good", b"abc"), 3).unwrap(), b"abc");
        for (path, why) in [
            (file("long", b"abcd"), "longer than 3"),
            (file("empty", b""), "empty"),
            (folder.path().to_owned(), "not a regular file"),
            ("/dev/zero".into(), "not a regular file"),
            (folder.path().join("absent"), "No such file"),
        ] {
            let error = read(&path, 3).unwrap_err();
            assert!(error.contains(why) && error.contains(path.to_str().unwrap()), "{error}");
        }
        assert!(read_text(&file("binary", &[0xFF]), 3).unwrap_err().ends_with("not text"));
    }
}
