//! Accepts self-signed server certificates that are trusted explicitly.
//!
//! The usual private registry has one certificate from `openssl req -x509`, which says that it is
//! an authority (`CA:TRUE`) and is added to the trusted ones. Go, and so Docker and podman, accept
//! it; `webpki` refuses an authority as a server's certificate (`CaUsedAsEndEntity`). Here a
//! certificate that is, byte for byte, among the explicitly trusted ones is accepted if its name
//! matches and its dates are valid; `webpki` decides about all others.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

/// `webpki`'s verifier, and the certificates that are trusted explicitly.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) chains: Arc<WebPkiServerVerifier>,
    pub(super) pinned: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let judged = self.chains.verify_server_cert(certificate, intermediates, name, ocsp, now);
        if judged.is_ok() || !self.pinned.iter().any(|pinned| pinned == certificate) {
            return judged;
        }
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        let (from, until) = validity(certificate)
            .ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))?;
        if now.as_secs() < from {
            return Err(CertificateError::NotValidYet.into());
        }
        if now.as_secs() > until {
            return Err(CertificateError::Expired.into());
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The dates of a certificate in seconds since 1970 (RFC 5280, section 4.1).
fn validity(certificate: &[u8]) -> Option<(u64, u64)> {
    let (_, outer, _) = element(certificate)?;
    let (_, body, _) = element(outer)?;
    let mut rest = body;
    // version, serial number, signature algorithm, issuer, then the dates.
    for expected in [VERSION, INTEGER, SEQUENCE, SEQUENCE] {
        let (tag, _, after) = element(rest)?;
        match tag == expected {
            true => rest = after,
            // Version 1 certificates have no version field.
            false if expected == VERSION => {}
            false => return None,
        }
    }
    let (_, dates, _) = element(rest)?;
    let (first_tag, first, after) = element(dates)?;
    let (second_tag, second, _) = element(after)?;
    Some((time(first_tag, first)?, time(second_tag, second)?))
}

/// Returns tag, content and the rest (X.690, definite lengths of at most four bytes).
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = digits.iter().fold(0usize, |n, &digit| n << 8 | usize::from(digit));
            (length, rest)
        }
        _ => return None,
    };
    let (content, after) = rest.split_at_checked(length)?;
    Some((tag, content, after))
}

/// Parses `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn time(tag: u8, text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let year: u64 = text.get(..2)?.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, text.get(2..)?)
        }
        GENERALIZED_TIME => (text.get(..4)?.parse().ok()?, text.get(4..)?),
        _ => return None,
    };
    let two = |at: usize| rest.get(at..at + 2)?.parse::<u64>().ok();
    let days = crate::date::days(year, two(0)?, two(2)?)?;
    Some(days * 86_400 + two(4)? * 3_600 + two(6)? * 60 + two(8)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_dates() {
        assert_eq!(time(UTC_TIME, b"700101000000Z"), Some(0));
        assert_eq!(time(UTC_TIME, b"240229000000Z"), Some(1_709_164_800));
        assert_eq!(time(GENERALIZED_TIME, b"20240229000001Z"), Some(1_709_164_801));
        for bad in [&b""[..], b"Z", b"24Z", b"\xff\xffZ", b"241301000000Z"] {
            assert_eq!(time(UTC_TIME, bad), None);
        }
        assert_eq!(validity(&[]), None);
        assert_eq!(validity(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    }
}
