// Package authority signs certificates of servers for tests.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates. Its methods fail the test.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// File has the authority's own certificate.
	File string
}

// New makes an authority that nobody trusts yet.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, File: filepath.Join(t.TempDir(), "ca.pem")}
	a.cert, a.key = a.make(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "test authority"},
		NotAfter:              time.Now().Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	})
	a.write(a.File, "CERTIFICATE", a.cert.Raw)
	return a
}

// Sign writes the certificate of a server at an address, which expires at a time, and
// its key: cert.pem and key.pem in a folder.
func (a *Authority) Sign(dir, address string, expires time.Time) {
	a.t.Helper()
	cert, key := a.make(&x509.Certificate{Subject: pkix.Name{CommonName: "test server"}, NotAfter: expires,
		IPAddresses: []net.IP{net.ParseIP(address)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	der, err := x509.MarshalECPrivateKey(key)
	a.must(err)
	a.write(filepath.Join(dir, "cert.pem"), "CERTIFICATE", cert.Raw)
	a.write(filepath.Join(dir, "key.pem"), "EC PRIVATE KEY", der)
}

func (a *Authority) make(c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.must(err)
	c.SerialNumber, c.NotBefore = big.NewInt(time.Now().UnixNano()), time.Now().Add(-2*time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	a.must(err)
	made, err := x509.ParseCertificate(der)
	a.must(err)
	return made, key
}

func (a *Authority) write(path, what string, der []byte) {
	a.t.Helper()
	a.must(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: what, Bytes: der}), 0o600))
}

func (a *Authority) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}
