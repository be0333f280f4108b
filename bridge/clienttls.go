package bridge

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
)

// ClientTLS has what a client's TLS connections trust and present. All are PEM texts, and
// any may be empty. A text from a file is read again for each connection, so that
// certificates can be rotated.
type ClientTLS struct {
	// Prefix begins the names of the settings in errors: KAFKA_TLS for KAFKA_TLS_CA,
	// KAFKA_TLS_CERT and KAFKA_TLS_KEY.
	Prefix   string
	CA, Cert string
	Key      Secret
	// CAFile, CertFile and KeyFile are the files that the texts were read from, if any.
	CAFile, CertFile, KeyFile string
}

// TLSFileError means that a certificate or key can no longer be read, or no longer fits.
// The error may be temporary, because the files are not replaced all at once.
type TLSFileError struct {
	Variable string
	Err      error
}

func (e *TLSFileError) Error() string { return fmt.Sprintf("reload %s: %v", e.Variable, e.Err) }

// Unwrap returns the cause.
func (e *TLSFileError) Unwrap() error { return e.Err }

var errNoCertificate = errors.New("contains no PEM certificate (-----BEGIN CERTIFICATE-----)")

// Validate checks the texts. The error has the type Problems.
func (c ClientTLS) Validate() error {
	var p Problems
	ca := c.Prefix + "_CA"
	if _, err := roots(c.CA); err != nil {
		p.Add(Problemf(ca, "%v; for a file set %s_FILE=/etc/exportbridge/ca.pem", err, ca))
	}
	p.Add(CheckKeyPair(c.Prefix, c.Cert, c.Key))
	return p.Err()
}

// CheckKeyPair returns the problem of a certificate and its key (PEM), nil if both are empty.
// prefix is as in ClientTLS.
func CheckKeyPair(prefix, cert string, key Secret) error {
	certName, keyName := prefix+"_CERT", prefix+"_KEY"
	switch {
	case cert == "" && key == "":
		return nil
	case key == "":
		return Problemf(keyName, "is not set, but %s is; set %s_FILE", certName, keyName)
	case cert == "":
		return Problemf(certName, "is not set, but %s is; set %s_FILE", keyName, certName)
	}
	if _, err := tls.X509KeyPair([]byte(cert), []byte(key.Reveal())); err != nil {
		return Problemf(certName, "and %s are not a PEM key pair (%v); for files set "+
			"%s_FILE=/etc/exportbridge/tls.pem, %[1]s_FILE=/etc/exportbridge/tls.key", keyName, err, certName)
	}
	return nil
}

// Config returns the settings of a new connection, with the present content of the files.
func (c ClientTLS) Config() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	ca, err := c.text("_CA", c.CA, c.CAFile)
	if err != nil {
		return nil, err
	}
	conf.RootCAs, err = roots(ca)
	if err == nil && conf.RootCAs == nil && c.CAFile != "" { // an empty file is being replaced
		err = errNoCertificate
	}
	if err != nil {
		return nil, &TLSFileError{c.Prefix + "_CA", err}
	}
	if c.Cert != "" {
		pair, err := c.Certificate(nil)
		if err != nil {
			return nil, err
		}
		conf.Certificates = []tls.Certificate{*pair}
	}
	return conf, nil
}

// Certificate returns the certificate of a new connection, with the present content of the
// files. It can be the GetClientCertificate of a tls.Config.
func (c ClientTLS) Certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	cert, err := c.text("_CERT", c.Cert, c.CertFile)
	if err != nil {
		return nil, err
	}
	key, err := c.text("_KEY", c.Key.Reveal(), c.KeyFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		return nil, &TLSFileError{c.Prefix + "_CERT", err}
	}
	return &pair, nil
}

func (c ClientTLS) text(name, text, file string) (string, error) {
	text, err := Reread(text, file)
	if err != nil {
		return "", &TLSFileError{c.Prefix + name + "_FILE", err}
	}
	return text, nil
}

// roots returns the trusted certificates, nil for those of the system.
func roots(pem string) (*x509.CertPool, error) {
	if pem == "" {
		return nil, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(pem)) {
		return nil, errNoCertificate
	}
	return pool, nil
}

// IsTLSAlert reports whether the server ended TLS: crypto/tls shows its alerts in no other way.
func IsTLSAlert(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}
