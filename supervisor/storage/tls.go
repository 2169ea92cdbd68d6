package storage

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"saltern/glusterctl"
	"saltern/glusterctl/cert"
	"saltern/internal/durable"
	"saltern/supervisor/layout"
)

// With TLS every connection of the pool is encrypted and needs a certificate of the pool's own
// authority. Between clients and bricks the certificate must name a member (auth.ssl-allow);
// between glusterds any name is accepted. The node that forms the cluster creates the authority. A
// node that joins creates a key, and a node that serves signs its certificate over the node API,
// before the new node's glusterd starts and joins the pool.
//
// A node that serves gets the authority's key. So it can admit a new node, and renew its own
// certificate, even if no other node answers. An arbiter never gets the key.

const (
	tlsDir        = "tls"
	authorityCert = "authority.pem"
	authorityKey  = "authority.key"
)

// maxPEM bounds an authority's certificate or key, in bytes.
const maxPEM = 16 << 10

// Authority holds the certificate and key that sign the certificates of the pool's members.
type Authority struct {
	Cert []byte `json:"cert"` // certificate, in PEM
	Key  []byte `json:"key"`  // private key, in PEM; a secret
}

// errNoAuthority means that this node does not have the pool's authority (yet).
var errNoAuthority = errors.New("this node has no authority for the storage's certificates")

// Authority returns the pool's authority for a node that joins.
func (m *Manager) Authority() (Authority, error) { return readAuthority(m.cfg.Dir) }

func readAuthority(dir string) (a Authority, err error) {
	dir = filepath.Join(dir, tlsDir)
	if a.Key, _, err = durable.ReadFile(filepath.Join(dir, authorityKey), maxPEM, durable.Follow); err == nil {
		a.Cert, _, err = durable.ReadFile(filepath.Join(dir, authorityCert), maxPEM, durable.Follow)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return Authority{}, errNoAuthority
	}
	if err != nil {
		return Authority{}, fmt.Errorf("authority of the storage's certificates: %w", err)
	}
	return a, nil
}

// saveTo writes the authority to this node's disk. It writes the certificate before the key, so
// that a node with the key always has both.
func (a Authority) saveTo(dir string) error {
	dir = filepath.Join(dir, tlsDir)
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		_, err = layout.WriteFile(filepath.Join(dir, authorityCert), a.Cert, 0o600)
	}
	if err == nil {
		_, err = layout.WriteFile(filepath.Join(dir, authorityKey), a.Key, 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep the authority of the storage's certificates: %w", err)
	}
	return nil
}

// Signed is a certificate and the authority that has signed it, both PEM.
type Signed struct{ Cert, Authority []byte }

// Certifier requests certificates and the authority of the shared volume from other nodes of the
// cluster.
type Certifier interface {
	// Sign asks another node to sign this node's request (PKCS #10, PEM).
	Sign(ctx context.Context, request []byte) (Signed, error)
	// Authority asks another node for the authority. Nodes send it only to a node that serves.
	Authority(ctx context.Context) (Authority, error)
}

// Sign signs a node's request for its certificate.
func (m *Manager) Sign(request []byte, node string) (Signed, error) {
	a, err := m.Authority()
	if err != nil {
		return Signed{}, err
	}
	c, err := a.asPair().SignRequest(request, node, rand.Reader, m.cfg.Now())
	if err != nil {
		return Signed{}, fmt.Errorf("certificate of the storage for %s: %w", node, err)
	}
	return Signed{Cert: c, Authority: a.Cert}, nil
}

// ensureCertificate makes sure that this node's GlusterFS has a certificate and uses TLS, if the
// cluster uses TLS.
func (m *Manager) ensureCertificate(ctx context.Context, d glusterctl.Desired) error {
	if !d.TLS {
		return nil
	}

	if err := m.ensureCertificateIn(ctx, certificateDir(cert.Dir), d); err != nil {
		return fmt.Errorf("certificate of the storage: %w", err)
	}
	if exists(filepath.Join(glusterctl.DaemonState, secureAccess)) {
		return nil
	}

	// A glusterd that runs already was started by Debian's package, without TLS.
	if err := os.WriteFile(m.restartMark(), nil, 0o600); err != nil {
		return err
	}

	if err := os.MkdirAll(glusterctl.DaemonState, 0o755); err != nil {
		return err
	}

	return glusterctl.EncryptManagement(glusterctl.DaemonState)
}

// ensureCertificateIn writes this node's certificate to dir, unless dir has a valid one. The
// authority on this node's disk signs the certificate; the node that forms the pool creates the
// authority first. A node without the authority asks another node to sign.
func (m *Manager) ensureCertificateIn(ctx context.Context, dir string, d glusterctl.Desired) error {
	a, err := readAuthority(m.cfg.Dir)
	if errors.Is(err, errNoAuthority) && d.Form {
		a, err = m.makeAuthority(d)
	}

	switch {
	case errors.Is(err, errNoAuthority):
		return m.askForCertificate(ctx, dir, d)
	case err != nil:
		return err
	}

	if err := installCertificate(dir, a, d.Self, m.cfg.Now()); err != nil {
		return err
	}
	if m.decidesOnly() { // an older version, or this node before it became the arbiter, may have left the key
		return remove(filepath.Join(m.cfg.Dir, tlsDir, authorityKey))
	}

	return nil
}

// makeAuthority creates the authority of a new pool.
func (m *Manager) makeAuthority(d glusterctl.Desired) (Authority, error) {
	pair, err := cert.New(d.Volume, rand.Reader, m.cfg.Now())
	if err != nil {
		return Authority{}, err
	}
	a := Authority{Cert: pair.Cert, Key: pair.Key}
	return a, a.saveTo(m.cfg.Dir)
}

// askForCertificate asks another node to sign a certificate, unless this node has a valid one.
func (m *Manager) askForCertificate(ctx context.Context, dir string, d glusterctl.Desired) error {
	path := filepath.Join(m.cfg.Dir, tlsDir, authorityCert)
	authority, _, err := durable.ReadFile(path, maxPEM, durable.Follow)
	if err == nil && goodCertificate(dir, authority, d.Self, m.cfg.Now()) {
		return nil
	}
	if m.cfg.Others == nil {
		return fmt.Errorf("%w, and nobody can be asked for it", errNoAuthority)
	}

	request, key, err := cert.Request(d.Self, rand.Reader)
	if err != nil {
		return err
	}

	signed, err := m.cfg.Others.Sign(ctx, request)
	if err != nil {
		return fmt.Errorf("ask another node to sign it: %w", err)
	}

	err = cert.Verify(signed.Authority, signed.Cert, d.Self, m.cfg.Now())
	if err == nil && !cert.Matches(signed.Cert, key) {
		err = errors.New("it is for another key")
	}

	if err != nil {
		return fmt.Errorf("another node's answer: %w", err)
	}

	if err := placeCertificate(dir, signed.Authority, cert.Pair{Cert: signed.Cert, Key: key}); err != nil {
		return err
	}

	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}

	_, err = layout.WriteFile(path, signed.Authority, 0o600)
	return err
}

// getAuthority fetches the authority's key if this node serves and has no such key yet. If that
// fails, the node works without the key and tries again later.
func (m *Manager) getAuthority(ctx context.Context) {
	if m.cfg.Others == nil || !m.serves() || m.cfg.Now().Sub(m.askedAt) < time.Minute {
		return
	}

	if _, err := readAuthority(m.cfg.Dir); !errors.Is(err, errNoAuthority) {
		return
	}

	m.askedAt = m.cfg.Now()

	a, err := m.cfg.Others.Authority(ctx)
	if err == nil {
		err = m.keepAuthority(a)
	}

	if err != nil {
		m.cfg.Log.Warn("this node cannot sign certificates of the storage yet", "error", err)
	}
}

// keepAuthority saves the authority if it is the authority that signed this node's certificate.
func (m *Manager) keepAuthority(a Authority) error {
	known, _, err := durable.ReadFile(filepath.Join(m.cfg.Dir, tlsDir, authorityCert), maxPEM, durable.Follow)
	if err != nil {
		return err
	}
	if !bytes.Equal(known, a.Cert) {
		return errors.New("another node has another authority of the storage's certificates")
	}
	if _, err := a.asPair().Issue(m.cfg.Self, rand.Reader, m.cfg.Now()); err != nil {
		return fmt.Errorf("another node's authority: %w", err)
	}
	return a.saveTo(m.cfg.Dir)
}

// restartMark returns the path of a file that exists while glusterd must restart to use TLS.
func (m *Manager) restartMark() string {
	return filepath.Join(m.cfg.Dir, tlsDir, "start-glusterd-anew")
}

// renewCertificate replaces a certificate that expires within a year. It checks the certificate
// hourly. Running processes use the new certificate after their next start. Only keepChanging calls
// it.
func (m *Manager) renewCertificate(ctx context.Context, d glusterctl.Desired) error {
	if !d.TLS {
		return nil
	}
	m.getAuthority(ctx)
	if m.cfg.Now().Sub(m.renewedAt) < time.Hour {
		return nil
	}
	err := m.ensureCertificate(ctx, d)
	if err == nil {
		m.renewedAt = m.cfg.Now()
	}
	return err
}

// secureAccess is the name of a file. If it exists, glusterds use TLS with each other; see
// glusterctl.EncryptManagement.
const secureAccess = "secure-access"

func (a Authority) asPair() cert.Pair { return cert.Pair{Cert: a.Cert, Key: a.Key} }

// certificateDir returns the directory in which to write the certificate files that GlusterFS reads
// in dir. This is dir, except in the image: there dir is read-only and contains links, and
// certificateDir returns the directory to which they lead.
func certificateDir(dir string) string {
	if to, err := os.Readlink(filepath.Join(dir, "glusterfs.pem")); err == nil && filepath.IsAbs(to) {
		return filepath.Dir(to)
	}
	return dir
}

// installCertificate issues a certificate for this node and puts it where GlusterFS reads it,
// unless a good certificate is there.
func installCertificate(dir string, a Authority, self string, now time.Time) error {
	if goodCertificate(dir, a.Cert, self, now) {
		return nil
	}
	p, err := a.asPair().Issue(self, rand.Reader, now)
	if err != nil {
		return err
	}
	return placeCertificate(dir, a.Cert, p)
}

// goodCertificate reports whether dir has a certificate for the node self, signed by authority,
// that is valid for at least another year.
func goodCertificate(dir string, authority []byte, self string, now time.Time) bool {
	read := func(name string) []byte {
		// an unreadable file counts as missing
		b, _, _ := durable.ReadFile(filepath.Join(dir, name), maxPEM, durable.Follow)
		return b
	}
	have := read("glusterfs.pem")
	end, err := cert.Expires(have)
	// A year, because processes use a new certificate only from their next start.
	return err == nil && end.Sub(now) > 365*24*time.Hour && bytes.Equal(read("glusterfs.ca"), authority) &&
		cert.Verify(authority, have, self, now) == nil && cert.Matches(have, read("glusterfs.key"))
}

// placeCertificate writes a certificate where GlusterFS reads it.
func placeCertificate(dir string, authority []byte, p cert.Pair) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	err := cert.Install(dir, authority, p)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		err = fmt.Errorf("%w; make links there to files that can be written: for f in pem key ca; "+
			"do ln -s /etc/ssl/glusterfs.$f %s/; done",
			err, dir)
	}
	return err
}

// forgetIdentity removes this node's certificates and its authority, if it has one.
func (m *Manager) forgetIdentity() error {
	authority, _, err := durable.ReadFile(filepath.Join(m.cfg.Dir, tlsDir, authorityCert), maxPEM, durable.Follow)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	dir := certificateDir(cert.Dir)
	var faults []error
	if ca, err := os.ReadFile(filepath.Join(dir, "glusterfs.ca")); err == nil && bytes.Equal(ca, authority) {
		for _, name := range []string{"glusterfs.pem", "glusterfs.key", "glusterfs.ca"} {
			faults = append(faults, remove(filepath.Join(dir, name)))
		}
	}

	faults = append(faults, remove(filepath.Join(glusterctl.DaemonState, secureAccess)),
		os.RemoveAll(filepath.Join(m.cfg.Dir, tlsDir)))
	return errors.Join(append(faults, err)...)
}

// CertificateEnds returns when the certificate of this machine's GlusterFS ends.
func CertificateEnds() (time.Time, error) {
	b, _, err := durable.ReadFile(filepath.Join(certificateDir(cert.Dir), "glusterfs.pem"), maxPEM, durable.Follow)
	if err != nil {
		return time.Time{}, err
	}
	return cert.Expires(b)
}
