//! Protected connections: real handshakes with certificates of an authority made here.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{ServerConfig, crypto::ring};

use super::*;

/// An authority, as a company has it, and its certificate in a file.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    file: tempfile::NamedTempFile,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), issuer.pem()).unwrap();
        Self { issuer, file }
    }

    /// What a server needs to show a certificate for `host`.
    fn vouch(&self, host: &str, change: impl FnOnce(&mut CertificateParams)) -> TlsAcceptor {
        let mut params = CertificateParams::new([host.to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                key.serialize_der().try_into().unwrap(),
            )
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// Stands before a server and speaks TLS for it, with the second certificate while `switched`.
struct Protected {
    endpoint: String,
    switched: Arc<AtomicBool>,
    _runtime: tokio::runtime::Runtime,
}

fn protect(server: &HubServer, certificates: [TlsAcceptor; 2]) -> Protected {
    let behind = server.endpoint().replace("http://", "");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let endpoint = format!("https://{}", listener.local_addr().unwrap());
    let switched = Arc::new(AtomicBool::new(false));
    let second = switched.clone();
    runtime.spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let certificate = certificates[usize::from(second.load(Ordering::SeqCst))].clone();
            let behind = behind.clone();
            tokio::spawn(async move {
                let mut client = certificate.accept(client).await?;
                let mut server = TcpStream::connect(behind).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    Protected {
        endpoint,
        switched,
        _runtime: runtime,
    }
}

fn believing(endpoint: &str, certificates: Option<PathBuf>, server: &HubServer) -> Settings {
    Settings {
        endpoint: endpoint.to_owned(),
        certificates,
        ..settings(server)
    }
}

fn snapshot(settings: Settings) -> fastar_hub::Result<(Hub, Snapshot)> {
    let hub = Hub::new(settings)?;
    let snapshot = hub.snapshot(REPO, "main", &Control::new())?;
    Ok((hub, snapshot))
}

#[test]
fn a_server_that_the_named_authority_vouches_for_is_believed() {
    let (server, contents, folder) = one(3 * MIB);
    let authority = Authority::new("Acme");
    let good = authority.vouch("127.0.0.1", |_| {});
    let protected = protect(&server, [good.clone(), good]);
    let named = Settings::from_variables(|name| {
        (name == "SSL_CERT_FILE").then(|| authority.file.path().as_os_str().to_owned())
    });
    let settings = believing(&protected.endpoint, named.certificates, &server);
    let (hub, snapshot) = snapshot(settings).unwrap();
    fetch(&hub, &snapshot, folder.path()).unwrap();
    holds(folder.path(), &contents);
    let host = protected.endpoint.replace("https://", "");
    let seen = server.requests();
    assert!(seen.len() == 3 && seen.iter().all(|request| request.host == host));
}

#[test]
fn a_server_that_nobody_vouches_for_is_refused_at_once_in_one_sentence() {
    let (server, _, _) = one(MIB);
    let [known, unknown, impostor] = ["Acme", "Other", "Acme"].map(Authority::new);
    let host = "127.0.0.1";
    let expired = |params: &mut CertificateParams| params.not_after = date_time_ymd(2020, 1, 1);
    let early = |params: &mut CertificateParams| params.not_before = date_time_ymd(4000, 1, 1);
    for (certificate, says) in [
        (
            unknown.vouch(host, |_| {}),
            "comes from an authority that this computer does not know. In a company network, install its certificate on this computer or name its file in SSL_CERT_FILE",
        ),
        (
            impostor.vouch(host, |_| {}),
            "comes from an authority that this computer does not know",
        ),
        (
            known.vouch(host, expired),
            "has expired. Check this computer's date",
        ),
        (
            known.vouch(host, early),
            "is not valid yet. Check this computer's date",
        ),
        (known.vouch("login.test", |_| {}), "is that of another host"),
    ] {
        let protected = protect(&server, [certificate.clone(), certificate]);
        let file = Some(known.file.path().to_owned());
        let settings = Settings {
            token: Token::new("hf_secret"),
            // With retries the test would hang.
            first_wait: Duration::from_secs(3600),
            longest_wait: Duration::from_secs(3600),
            ..believing(&protected.endpoint, file, &server)
        };
        let error = snapshot(settings).unwrap_err();
        assert!(!error.is_transient());
        let host = protected.endpoint.replace("https://", "");
        let sentence = format!("{host} cannot be trusted: its certificate {says}");
        assert!(error.to_string().starts_with(&sentence), "{error}");
    }
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn a_portal_that_comes_between_in_the_middle_of_a_transfer_is_waited_out() {
    let (server, contents, folder) = one(4 * MIB);
    let [known, portal] = ["Acme", "Portal"].map(Authority::new);
    let vouched = |authority: &Authority| authority.vouch("127.0.0.1", |_| {});
    let protected = protect(&server, [vouched(&known), vouched(&portal)]);
    let file = Some(known.file.path().to_owned());
    let (hub, snapshot) = snapshot(believing(&protected.endpoint, file, &server)).unwrap();
    for (after, times) in [(2 * MIB, 1), (0, u32::MAX)] {
        let fault = Fault::Cut {
            after,
            clean: false,
        };
        server.fault("*", fault, times);
    }
    let control = Control::new();
    let start = Instant::now();
    let mut seen = false;
    let on_event = |event| {
        let Event::Progress(progress) = event else {
            return;
        };
        if start.elapsed() > Duration::from_secs(60) {
            control.cancel();
        }
        if progress.done == 2 * MIB && !seen {
            protected.switched.store(true, Ordering::SeqCst);
            server.heal();
        }
        if let Phase::Waiting { why, .. } = progress.phase
            && why.contains("cannot be trusted: its certificate comes from an authority")
        {
            seen = true;
            protected.switched.store(false, Ordering::SeqCst);
        }
    };
    hub.fetch_set(
        &snapshot.files,
        folder.path(),
        &Options::default(),
        &control,
        on_event,
    )
    .unwrap();
    assert!(seen);
    holds(folder.path(), &contents);
}

#[test]
fn a_file_of_certificates_that_is_none_is_named_with_its_variable() {
    let (server, _, folder) = one(1);
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "no certificate").unwrap();
    for (path, says) in [
        (folder.path().join("away.pem"), "away.pem could not be read"),
        (text, "notes.txt holds no certificates in PEM form"),
        (folder.path().to_owned(), "is no file of certificates"),
    ] {
        let error = Hub::new(believing(&server.endpoint(), Some(path), &server)).unwrap_err();
        let error = error.to_string();
        assert!(
            error.starts_with("The file of certificates (SSL_CERT_FILE) cannot be used: ")
                && error.contains(says),
            "{error}"
        );
    }
}
