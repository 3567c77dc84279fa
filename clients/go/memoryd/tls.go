package memoryd

import (
	"crypto/tls"
	"crypto/x509"
)

// TLS says whom to trust and who the client is, by PEM files, which [Connect] reads. A leading "~" in their names is
// the home directory.
type TLS struct {
	// CAFile holds the certificates to trust, or the daemon's own; empty means the authorities that the system trusts.
	CAFile string
	// CertFile is the client's certificate, for a daemon that asks for one. KeyFile is needed with it.
	CertFile string
	// KeyFile is the key of CertFile.
	KeyFile string
	// ServerName is the name to look for in the daemon's certificate, where that is not the host that is dialled.
	ServerName string
}

func (t TLS) config() (*tls.Config, error) {
	config := &tls.Config{ServerName: t.ServerName, MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		pem, err := readFile(t.CAFile, "the file of certificates to trust")
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, refusal("the file of certificates to trust, %s, holds no certificate in PEM form", t.CAFile)
		}
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		return nil, refusal(
			"the client's certificate and its key are needed together; only %s is named", t.CertFile+t.KeyFile)
	}
	if t.CertFile == "" {
		return config, nil
	}
	certificate, err := t.certificate()
	if err != nil {
		return nil, err
	}
	config.Certificates = []tls.Certificate{certificate}
	return config, nil
}

func (t TLS) certificate() (tls.Certificate, error) {
	pem, err := readFile(t.CertFile, "the client's certificate")
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := readFile(t.KeyFile, "the client's key")
	if err != nil {
		return tls.Certificate{}, err
	}
	certificate, err := tls.X509KeyPair(pem, key)
	if err != nil {
		return tls.Certificate{}, refusal(
			"the client's certificate %s and key %s do not serve: %w", t.CertFile, t.KeyFile, err)
	}
	return certificate, nil
}
