//! Whom to believe on a protected connection: the authorities of the system, and those in a file that the person names, as company networks
//! need it. And what to say of a certificate that nobody vouches for.

use std::error::Error as StdError;
use std::io::{self, Read};
use std::path::Path;

use reqwest::Certificate;
use rustls::CertificateError;

use crate::error::shown;
use crate::{Error, Result};

/// The largest bundles in use have half a megabyte.
const MOST_BYTES: u64 = 16 << 20;

/// The certificates in a PEM file.
pub(crate) fn read(path: &Path) -> Result<Vec<Certificate>> {
    let unusable = |problem: String| Error::Setting {
        what: "The file of certificates (SSL_CERT_FILE)",
        problem: format!("{} {problem}", shown(path)),
    };
    let io = |error: io::Error| unusable(format!("could not be read ({error})"));
    let about = std::fs::metadata(path).map_err(io)?;
    if !about.is_file() || about.len() > MOST_BYTES {
        return Err(unusable("is no file of certificates".into()));
    }
    let mut text = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MOST_BYTES).read_to_end(&mut text))
        .map_err(io)?;
    match Certificate::from_pem_bundle(&text) {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(unusable("holds no certificates in PEM form".into())),
    }
}

/// What is wrong with the other side's certificate, after "its certificate", if that is why a request failed.
pub(crate) fn distrust(error: &reqwest::Error) -> Option<String> {
    let mut reason: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(this) = reason {
        if let Some(rustls::Error::InvalidCertificate(why)) = this.downcast_ref() {
            return Some(explain(why));
        }
        // What an I/O error wraps is not among its sources.
        reason = match this
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
        {
            Some(inner) => Some(inner),
            None => this.source(),
        };
    }
    None
}

fn explain(why: &CertificateError) -> String {
    match why {
        // A bad signature: somebody took the name of an authority that is known.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => "comes from an authority that this computer does not know. In a company network, install its \
             certificate on this computer or name its file in SSL_CERT_FILE; elsewhere, do not trust this network"
            .into(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "has expired. Check this computer's date; if it is right, try another mirror or network".into()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet. Check this computer's date".into()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "is that of another host (a log-in portal or a proxy?). Open a browser, log in to the network if it asks, and try again".into()
        }
        other => format!("cannot be used ({other})"),
    }
}
