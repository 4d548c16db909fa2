//! Certificates to try things with. Real ones come from a real authority.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use super::HostResult;

/// Writes `ca.pem` and, for `relay` and `router`, `NAME.pem` and `NAME.key`, all valid for the
/// loopback addresses only.
///
/// # Errors
/// A folder that cannot be written.
pub fn write(folder: &Path) -> HostResult<()> {
    std::fs::create_dir_all(folder)?;
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "ckf trial authority");
    let certificate = params.self_signed(&key)?;
    std::fs::write(folder.join("ca.pem"), certificate.pem())?;
    let authority = Issuer::new(params, key);
    for name in ["relay", "router"] {
        let key = KeyPair::generate()?;
        let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &authority)?;
        std::fs::write(folder.join(format!("{name}.pem")), certificate.pem())?;
        write_secret(&folder.join(format!("{name}.key")), &key.serialize_pem())?;
    }
    Ok(())
}

/// Writes a file that only its owner may read.
fn write_secret(path: &Path, text: &str) -> HostResult<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)?.write_all(text.as_bytes())?;
    Ok(())
}
