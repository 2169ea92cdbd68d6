package slapd

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

// certificates makes an authority and a certificate of it for an address.
func (s *Server) certificates(address string) {
	s.t.Helper()
	ca, caKey := s.certificate("test authority", "", nil, nil)
	cert, key := s.certificate("slapd", address, ca, caKey)
	der, err := x509.MarshalECPrivateKey(key)
	s.must(err)
	s.write("ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}))
	s.write("cert.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
	s.write("key.pem", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

// OtherCA writes an authority that has signed nothing and gives its file.
func OtherCA(t testing.TB) string {
	t.Helper()
	s := &Server{t: t, dir: t.TempDir()}
	ca, _ := s.certificate("another authority", "", nil, nil)
	path := filepath.Join(s.dir, "other.pem")
	s.must(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}), 0o600))
	return path
}

func (s *Server) certificate(name, address string, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	s.must(err)
	c := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	if parent == nil {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
		parent, parentKey = c, key
	} else {
		c.IPAddresses, c.ExtKeyUsage = []net.IP{net.ParseIP(address)}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, parentKey)
	s.must(err)
	made, err := x509.ParseCertificate(der)
	s.must(err)
	return made, key
}
