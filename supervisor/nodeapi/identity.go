package nodeapi

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"saltern/supervisor/keyuse"
	"saltern/supervisor/layout"
)

// Identity is this node's key for the node API, with a self-signed certificate. Other nodes
// identify the key by Hash.
type Identity struct {
	cert tls.Certificate
	pem  []byte // the key as it is on the disk
	// Hash is the SHA-256 of the public key (SubjectPublicKeyInfo) in
	// hexadecimal, as in the table of nodes.
	Hash string
	// speaker returns the description of this machine that is sent with each request. It may be
	// nil: none is sent.
	speaker func() keyuse.Speaker
}

// Speaking returns a copy of the identity that adds what speaker returns to each request.
func (i *Identity) Speaking(speaker func() keyuse.Speaker) *Identity {
	speaking := *i
	speaking.speaker = speaker
	return &speaking
}

const identityFile = "identity.pem"

// LoadIdentity reads the key in dir, and creates it if there is none. dir must exist, and only we
// may read it.
func LoadIdentity(dir string) (*Identity, error) {
	id, err := ReadIdentity(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	if id, err = NewIdentity(); err != nil {
		return nil, err
	}
	return id, id.Save(dir)
}

// ReadIdentity reads the key in dir. If there is none, the error wraps [fs.ErrNotExist].
func ReadIdentity(dir string) (*Identity, error) {
	path := filepath.Join(dir, identityFile)
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("node's own key: %w", err)
	}
	return parseIdentity(b, path)
}

// NewIdentity creates a key in memory. Save writes it to the disk.
func NewIdentity() (*Identity, error) {
	b, err := newIdentity()
	if err != nil {
		return nil, fmt.Errorf("make the node's own key: %w", err)
	}
	return parseIdentity(b, identityFile)
}

// Save writes the key to dir, as [LoadIdentity] does.
func (i *Identity) Save(dir string) error {
	if _, err := layout.WriteFile(filepath.Join(dir, identityFile), i.pem, 0o600); err != nil {
		return fmt.Errorf("node's own key: %w", err)
	}
	return nil
}

func parseIdentity(b []byte, path string) (*Identity, error) {
	cert, err := tls.X509KeyPair(b, b)
	if err != nil {
		return nil, fmt.Errorf("node's own key %s: %w; restore it from a backup, or remove it and join again",
			path, err)
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		return nil, fmt.Errorf("node's own key %s: %w", path, err)
	}
	return &Identity{cert: cert, pem: b, Hash: hashOf(leaf)}, nil
}

func newIdentity() ([]byte, error) {
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}

	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}

	// The table of nodes, not the certificate, says which node has the key and for how long. So a
	// wrong clock cannot lock a node out.
	t := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "saltern node"},
		NotBefore:    time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:     time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}

	der, err := x509.CreateCertificate(rand.Reader, t, t, pub, key)
	if err != nil {
		return nil, err
	}

	pk, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}

	out := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pk})
	return append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...), nil
}

func hashOf(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

// peerHash returns the hash of the other end's certificate, or "" if the other end has sent none.
// The handshake has shown that the other end has the certificate's key.
func peerHash(s *tls.ConnectionState) string {
	if s == nil || len(s.PeerCertificates) == 0 {
		return ""
	}
	return hashOf(s.PeerCertificates[0])
}

const proto = "http/1.1"

// serverTLS returns a configuration that asks for a certificate but accepts any, or none. The
// handler of each request decides what its sender may do.
func (i *Identity) serverTLS() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{i.cert},
		ClientAuth:             tls.RequestClientCert,
		NextProtos:             []string{proto},
		SessionTicketsDisabled: true,
	}
}

// ErrPin means that the peer's certificate is not the certificate of the expected node.
var ErrPin = errors.New("another machine answers there: its certificate is not the one in the table of nodes")

// clientTLS returns a configuration that connects only to the node whose certificate has the hash
// pin. With the pin "" it connects to any node, which is then not authenticated.
func (i *Identity) clientTLS(pin string) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{i.cert},
		NextProtos:         []string{proto},
		InsecureSkipVerify: true, // names and issuers mean nothing here: VerifyConnection compares the key
		VerifyConnection: func(s tls.ConnectionState) error {
			got := peerHash(&s)
			if got == "" || pin != "" && subtle.ConstantTimeCompare([]byte(got), []byte(pin)) != 1 {
				return ErrPin
			}
			return nil
		},
	}
}
