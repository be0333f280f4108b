package transport

import (
	"crypto/tls"
	"fmt"

	"exportbridge/bridge"
)

// Certificate is a client certificate and its key (PEM), and the files that they were read
// from, if any.
type Certificate struct {
	Cert              string
	Key               bridge.Secret
	CertFile, KeyFile string
}

// load returns the certificate for a new connection. It reads the files again.
func (c Certificate) load(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	cert, key := c.Cert, c.Key.Reveal()
	for _, from := range []struct {
		file string
		to   *string
	}{{c.CertFile, &cert}, {c.KeyFile, &key}} {
		if from.file == "" {
			continue
		}
		text, err := bridge.ReadSecretFile(from.file)
		if err != nil {
			return nil, fmt.Errorf("reload the client certificate: %w", err)
		}
		*from.to = text
	}
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		return nil, fmt.Errorf("reload the client certificate: %w", err)
	}
	return &pair, nil
}
