package servers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Certificates are PEM files for servers with TLS, valid for a day.
type Certificates struct {
	// CA is the file of the authority that signed the other certificates.
	CA string
	// ServerCert and ServerKey are those of a server on 127.0.0.1 and localhost.
	ServerCert, ServerKey string
	// ClientCert and ClientKey are those of the client "bridge".
	ClientCert, ClientKey string

	serverStore string // key and certificate in one file, for Kafka
}

// WriteCertificates creates an authority and the certificates that it signs, in the folder
// dir.
func WriteCertificates(dir string) (*Certificates, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make certificates: %w", err)
	}
	caTemplate := certificate("exportbridge test authority", 1)
	caTemplate.IsCA, caTemplate.BasicConstraintsValid, caTemplate.KeyUsage = true, true, x509.KeyUsageCertSign
	ca, err := x509.CreateCertificate(rand.Reader, caTemplate, caTemplate, caKey.Public(), caKey)
	if err != nil {
		return nil, fmt.Errorf("make certificates: %w", err)
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	c := &Certificates{
		CA: file("ca.pem"), ServerCert: file("server.pem"), ServerKey: file("server.key"),
		ClientCert: file("client.pem"), ClientKey: file("client.key"), serverStore: file("server-store.pem"),
	}
	files := map[string][]byte{c.CA: encodePEM("CERTIFICATE", ca)}
	for serial, pair := range map[int64][3]string{
		2: {"localhost", c.ServerCert, c.ServerKey},
		3: {"bridge", c.ClientCert, c.ClientKey},
	} {
		template := certificate(pair[0], serial)
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		template.KeyUsage = x509.KeyUsageDigitalSignature
		template.DNSNames, template.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
		if files[pair[1]], files[pair[2]], err = sign(template, caTemplate, caKey); err != nil {
			return nil, fmt.Errorf("make certificate of %s: %w", pair[0], err)
		}
	}
	files[c.serverStore] = append(append([]byte{}, files[c.ServerKey]...), files[c.ServerCert]...)
	for name, content := range files {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return nil, fmt.Errorf("write certificates: %w", err)
		}
	}
	return c, nil
}

func certificate(name string, serial int64) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
	}
}

func sign(template, authority *x509.Certificate, by *ecdsa.PrivateKey) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, authority, private.Public(), by)
	if err != nil {
		return nil, nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return encodePEM("CERTIFICATE", raw), encodePEM("PRIVATE KEY", pkcs8), nil
}

func encodePEM(kind string, raw []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw})
}
