package bridge

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// ClientTLS is what a client's TLS connections trust and present. All are PEM texts, any may
// be empty. A text that was read from a file is read again for each connection, so that
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

// TLSFileError is a certificate or key that can no longer be read, or no longer fits. It may
// pass: files are not replaced all at once.
type TLSFileError struct {
	Variable string
	Err      error
}

func (e *TLSFileError) Error() string { return fmt.Sprintf("reload %s: %v", e.Variable, e.Err) }

// Unwrap returns the cause.
func (e *TLSFileError) Unwrap() error { return e.Err }

var errNoCertificate = errors.New("contains no PEM certificate (-----BEGIN CERTIFICATE-----)")

// Validate checks the texts. The error is of Problems.
func (c ClientTLS) Validate() error {
	var p Problems
	ca, cert, key := c.Prefix+"_CA", c.Prefix+"_CERT", c.Prefix+"_KEY"
	if _, err := roots(c.CA); err != nil {
		p.Add(Problemf(ca, "%v; for a file set %s_FILE=/etc/exportbridge/ca.pem", err, ca))
	}
	if c.Cert != "" || c.Key != "" {
		_, err := tls.X509KeyPair([]byte(c.Cert), []byte(c.Key.Reveal()))
		p.Check(err == nil, cert, "and %s are not a PEM key pair (%v); for files set "+
			"%s_FILE=/etc/exportbridge/client.pem, %[1]s_FILE=/etc/exportbridge/client.key", key, err, cert)
	}
	return p.Err()
}

// Config returns the settings of a new connection, from the files as they are now.
func (c ClientTLS) Config() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	ca, err := c.text("_CA", c.CA, c.CAFile)
	if err != nil {
		return nil, err
	}
	conf.RootCAs, err = roots(ca)
	if err == nil && conf.RootCAs == nil && c.CAFile != "" { // a file that is empty while it is replaced
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

// Certificate returns the certificate of a new connection, from the files as they are now. It
// can be a tls.Config's GetClientCertificate.
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

// roots returns trusted certificates, nil for the system's.
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
