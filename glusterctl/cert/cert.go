// Package cert is the certificate authority of one storage pool. GlusterFS checks only that the
// authority has signed the peer's certificate and that the certificate's common name is on a list.
// So this authority must sign only certificates for members of the pool. Another authority of this
// kind signs the certificates of a cluster's HTTPS servers.
package cert

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"saltern/internal/durable"
)

// Dir is where Debian's build of GlusterFS looks for glusterfs.pem, .key and .ca (not /etc/ssl).
// Without these files everything starts, but every mount fails.
const Dir = "/usr/lib/ssl"

// Lifetimes. A certificate is valid from long before its creation, for nodes whose clocks are
// wrong. The signature protects the connections, not the dates.
const (
	year          = 365 * 24 * time.Hour
	authorityLife = 20 * year
	memberLife    = 5 * year
	backdate      = 10 * year
)

// Pair is a certificate and its key in PEM. The key is a secret.
type Pair struct {
	Cert []byte
	Key  []byte
}

// New creates the authority of the pool called name. random must be a source of secrets
// (crypto/rand.Reader).
func New(pool string, random io.Reader, now time.Time) (Pair, error) {
	t, err := template(pool, random, now, authorityLife)
	if err != nil {
		return Pair{}, err
	}
	t.IsCA = true
	t.BasicConstraintsValid = true
	t.MaxPathLenZero = true
	t.KeyUsage = x509.KeyUsageCertSign
	return signCert(t, nil, nil, random)
}

// Issue returns the new key and certificate of a member.
func (ca Pair) Issue(member string, random io.Reader, now time.Time) (Pair, error) {
	t, parent, key, err := ca.memberTemplate(member, random, now)
	if err != nil {
		return Pair{}, err
	}
	return signCert(t, parent, key, random)
}

// memberTemplate returns in t an unsigned certificate for a member, and in parent and key the
// authority's certificate and key that sign it.
func (ca Pair) memberTemplate(
	member string,
	random io.Reader,
	now time.Time,
) (t, parent *x509.Certificate, key crypto.Signer, err error) {
	parent, key, err = ca.parsePair()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("issue a certificate for %s: the authority: %w", member, err)
	}
	if now.After(parent.NotAfter) {
		return nil, nil, nil, fmt.Errorf("issue a certificate for %s: the authority expired on %s", member,
			parent.NotAfter.Format(time.DateOnly))
	}

	if t, err = template(member, random, now, memberLife); err != nil {
		return nil, nil, nil, err
	}

	if t.NotAfter.After(parent.NotAfter) {
		t.NotAfter = parent.NotAfter
	}

	t.DNSNames = []string{member}
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	return t, parent, key, nil
}

// Request creates the key of a member and a request for the member's certificate (PKCS #10), both
// in PEM. The key is a secret and must stay on its machine.
func Request(member string, random io.Reader) (request, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), random)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}

	der, err := x509.CreateCertificateRequest(random,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: member}}, private)
	if err != nil {
		return nil, nil, fmt.Errorf("request a certificate for %s: %w", member, err)
	}

	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("encode a key: %w", err)
	}

	request = pem.EncodeToMemory(&pem.Block{Type: requestBlock, Bytes: der})
	return request, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}), nil
}

const requestBlock = "CERTIFICATE REQUEST"

// SignRequest creates the certificate for a request, of which it uses only the public key. Anybody
// may have written the request: the caller must know that it comes from this member.
func (ca Pair) SignRequest(
	request []byte,
	member string,
	random io.Reader,
	now time.Time,
) (certificate []byte, err error) {
	block, _ := pem.Decode(request)
	if block == nil || block.Type != requestBlock {
		return nil, errors.New("the request for a certificate is not PEM")
	}

	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err == nil {
		err = r.CheckSignature()
	}

	if err != nil {
		return nil, fmt.Errorf("the request for a certificate: %w", err)
	}

	public, ok := r.PublicKey.(*ecdsa.PublicKey)
	if !ok || public.Curve != elliptic.P256() {
		return nil, errors.New("the request for a certificate has no key on the curve P-256")
	}

	t, parent, key, err := ca.memberTemplate(member, random, now)
	if err != nil {
		return nil, err
	}

	der, err := x509.CreateCertificate(random, t, parent, public, key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate: %w", err)
	}

	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// IssueServer returns the new key and certificate of an HTTPS server with these host names and IP
// addresses.
func (ca Pair) IssueServer(name string, hosts []string, random io.Reader, now time.Time) (Pair, error) {
	parent, key, err := ca.parsePair()
	if err != nil {
		return Pair{}, fmt.Errorf("issue a certificate for %s: the authority: %w", name, err)
	}

	// Clients of HTTPS refuse certificates with a longer lifetime.
	t, err := template(name, random, now, 397*24*time.Hour)
	if err != nil {
		return Pair{}, err
	}

	t.NotBefore = now.Add(-24 * time.Hour).UTC()
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}

	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	return signCert(t, parent, key, random)
}

// Serves returns nil if the server's certificate is valid at that time for all hosts (names and IP
// addresses) and for clients that trust the authority.
func Serves(authority, server []byte, hosts []string, at time.Time) error {
	ca, err := parseCert(authority)
	if err != nil {
		return fmt.Errorf("the authority: %w", err)
	}

	c, err := parseCert(server)
	if err != nil {
		return err
	}

	roots := x509.NewCertPool()
	roots.AddCert(ca)
	if _, err := c.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at}); err != nil {
		return err
	}

	for _, h := range hosts {
		ip := net.ParseIP(h)
		if ip == nil && !slices.Contains(c.DNSNames, h) || ip != nil && !slices.ContainsFunc(c.IPAddresses, ip.Equal) {
			return fmt.Errorf("the certificate is not for %s", h)
		}
	}

	return nil
}

// Join returns certificate and key as one text. Split separates the two.
func (ca Pair) Join() []byte { return slices.Concat(ca.Cert, ca.Key) }

// Split separates a text that Join has made. It reports whether certificate and key belong
// together.
func Split(text []byte) (p Pair, ok bool) {
	b, rest := pem.Decode(text)
	if b == nil {
		return Pair{}, false
	}
	p = Pair{Cert: pem.EncodeToMemory(b), Key: rest}
	return p, Matches(p.Cert, p.Key)
}

func template(name string, random io.Reader, now time.Time, life time.Duration) (*x509.Certificate, error) {
	if name == "" || len(name) > 64 { // X.520 ub-common-name
		return nil, fmt.Errorf("certificate name %q: 1 to 64 characters are possible", name)
	}

	var serial [16]byte
	if _, err := io.ReadFull(random, serial[:]); err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}

	serial[0] &= 0x7f
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(serial[:]),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-backdate).UTC(),
		NotAfter:     now.Add(life).UTC(),
	}, nil
}

func signCert(t, parent *x509.Certificate, parentKey crypto.Signer, random io.Reader) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), random)
	if err != nil {
		return Pair{}, fmt.Errorf("make a key: %w", err)
	}

	if parent == nil {
		parent, parentKey = t, key
	}

	der, err := x509.CreateCertificate(random, t, parent, key.Public(), parentKey)
	if err != nil {
		return Pair{}, fmt.Errorf("sign a certificate: %w", err)
	}

	k, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encode a key: %w", err)
	}

	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: k}),
	}, nil
}

func (ca Pair) parsePair() (*x509.Certificate, crypto.Signer, error) {
	cert, err := parseCert(ca.Cert)
	if err != nil {
		return nil, nil, err
	}

	b, _ := pem.Decode(ca.Key)
	if b == nil {
		return nil, nil, errors.New("the key is not PEM")
	}

	k, err := x509.ParsePKCS8PrivateKey(b.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("parse the key: %w", err)
	}

	signer, ok := k.(crypto.Signer)
	if !ok {
		return nil, nil, fmt.Errorf("the key is a %T", k)
	}

	return cert, signer, nil
}

func parseCert(b []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(b)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("the certificate is not PEM")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse the certificate: %w", err)
	}
	return c, nil
}

// Verify returns nil if a member's certificate is valid at the time now: authority has signed it,
// and its common name is name.
func Verify(authority, member []byte, name string, now time.Time) error {
	ca, err := parseCert(authority)
	if err != nil {
		return fmt.Errorf("the authority: %w", err)
	}

	c, err := parseCert(member)
	if err != nil {
		return err
	}
	if c.Subject.CommonName != name {
		return fmt.Errorf("the certificate is for %q, not for %q", c.Subject.CommonName, name)
	}

	roots := x509.NewCertPool()
	roots.AddCert(ca)
	_, err = c.Verify(x509.VerifyOptions{
		Roots:       roots,
		CurrentTime: now,
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})

	return err
}

// Matches reports whether a key belongs to a certificate.
func Matches(cert, key []byte) bool {
	c, k, err := Pair{Cert: cert, Key: key}.parsePair()
	if err != nil {
		return false
	}
	pub, ok := k.Public().(*ecdsa.PublicKey)
	return ok && pub.Equal(c.PublicKey)
}

// Expires returns the end of a certificate's validity.
func Expires(cert []byte) (time.Time, error) {
	c, err := parseCert(cert)
	if err != nil {
		return time.Time{}, err
	}
	return c.NotAfter, nil
}

// Install writes the certificate files of a member into dir (see [Dir]). It replaces each file
// atomically, the key first. Only root can read the key.
func Install(dir string, authority []byte, member Pair) error {
	for _, f := range []struct {
		name    string
		content []byte
		mode    os.FileMode
	}{{"glusterfs.key", member.Key, 0o600}, {"glusterfs.pem", member.Cert, 0o644}, {"glusterfs.ca", authority, 0o644}} {
		if err := durable.Replace(filepath.Join(dir, f.name), f.content, f.mode); err != nil {
			return fmt.Errorf("install certificates: %w", err)
		}
	}
	return nil
}
