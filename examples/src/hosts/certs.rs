//! Certificates to try things with. Real ones come from a real authority.

use std::path::Path;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::HostResult;

/// How long they are valid; clocks may differ a little.
const VALID: Duration = Duration::from_secs(365 * 24 * 3600);
const BEFORE: Duration = Duration::from_secs(3600);

/// Writes `ca.pem` and, for `relay` and `router`, `NAME.pem` and `NAME.key`, all valid for a year, and
/// for the loopback addresses only. A relay is a server, and a client of NATS servers.
///
/// # Errors
/// A folder that cannot be written.
pub fn write(folder: &Path) -> HostResult<()> {
    use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
    std::fs::create_dir_all(folder)?;
    let key = KeyPair::generate()?;
    let mut params = params("ckf trial authority", Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    std::fs::write(folder.join("ca.pem"), params.self_signed(&key)?.pem())?;
    let authority = Issuer::new(params, key);
    for (name, purposes) in [("relay", vec![ServerAuth, ClientAuth]), ("router", vec![ClientAuth])]
    {
        let params = leaf(name, purposes)?;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &authority)?;
        std::fs::write(folder.join(format!("{name}.pem")), certificate.pem())?;
        write_secret(&folder.join(format!("{name}.key")), &key.serialize_pem())?;
    }
    Ok(())
}

/// What one side's certificate says.
///
/// # Errors
/// None that a test would see.
pub fn leaf(name: &str, purposes: Vec<ExtendedKeyUsagePurpose>) -> HostResult<CertificateParams> {
    let mut params = params(name, ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec())?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = purposes;
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn params(name: &str, hosts: Vec<String>) -> HostResult<CertificateParams> {
    let (mut params, now) = (CertificateParams::new(hosts)?, SystemTime::now());
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = (now - BEFORE).into();
    params.not_after = (now + VALID).into();
    Ok(params)
}

/// Writes a file that only its owner may read, also if it is there already with other rights.
fn write_secret(path: &Path, text: &str) -> HostResult<()> {
    use std::io::Write;
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(path)?;
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    Ok(file.write_all(text.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn keys_are_for_their_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("relay.key");
        // Also where a file was there before, for all to read.
        std::fs::write(&key, "").unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
        write(folder.path()).unwrap();
        for key in [key, folder.path().join("router.key")] {
            assert_eq!(key.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
}
