package memoryd

import (
	"crypto/tls"
	"crypto/x509"
)

// TLS names the PEM files of a TLS connection. [Connect] reads them. A leading "~" in a file name is the home
// directory.
type TLS struct {
	// CAFile contains the trusted certificates, or the daemon's own certificate. If empty, the system's certificate
	// authorities are trusted.
	CAFile string
	// CertFile contains the client certificate, for a daemon that requires one. KeyFile must be set too.
	CertFile string
	// KeyFile contains the private key of CertFile.
	KeyFile string
	// ServerName is the name in the daemon's certificate, if it differs from the host in the address. It applies to all
	// addresses of a client.
	ServerName string
}

func (t TLS) config() (*tls.Config, error) {
	config := &tls.Config{ServerName: t.ServerName, MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		pem, err := readFile(t.CAFile, "the file of trusted certificates")
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, refusal("the file of trusted certificates, %s, contains no PEM certificate", t.CAFile)
		}
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		return nil, refusal(
			"the client's certificate and its key are needed together; only %s is set", t.CertFile+t.KeyFile)
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
			"the client's certificate %s and key %s cannot be used: %w", t.CertFile, t.KeyFile, err)
	}
	return certificate, nil
}
