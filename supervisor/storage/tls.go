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

	"saltern/durable"
	"saltern/glusterctl"
	"saltern/glusterctl/cert"
	"saltern/supervisor/layout"
)

// With TLS every connection of the pool is encrypted and wants a certificate of
// the pool's own authority: between clients and bricks with a name that is a
// member's (auth.ssl-allow), between glusterds with any name. The node that forms
// the cluster makes the authority. Every member has it on its own disk, so that
// each can take in a new one and renew its own certificate when no other node
// answers; one that joins gets it from a member over the node API, before its
// glusterd starts and is taken into the pool.

const (
	tlsDir        = "tls"
	authorityCert = "authority.pem"
	authorityKey  = "authority.key"
	// renewBefore is how long before its end a certificate is replaced. Processes
	// take a new one at their next start.
	renewBefore = 365 * 24 * time.Hour
)

// maxPEM bounds an authority's certificate or key.
const maxPEM = 16 << 10

// Authority signs the certificates of the pool's members.
type Authority struct {
	Cert []byte `json:"cert"` // PEM
	Key  []byte `json:"key"`  // PEM, a secret
}

// errNoAuthority means that this node has no authority of the pool, or not yet.
var errNoAuthority = errors.New("this node has no authority for the storage's certificates")

// Authority gives the pool's authority for a node that joins.
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

// write keeps the authority on this node's disk; the certificate comes first,
// who finds the key finds both.
func (a Authority) write(dir string) error {
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

// identify sees to it that GlusterFS of this node has a certificate, if the
// cluster wants that.
func (m *Manager) identify(ctx context.Context, d glusterctl.Desired) error {
	if !d.TLS {
		return nil
	}
	a, err := m.authority(ctx, d)
	if err != nil {
		return err
	}
	if !exists(filepath.Join(glusterctl.DaemonState, secureAccess)) {
		// A glusterd that runs already was started by the package, in clear.
		if err := os.WriteFile(m.startAnew(), nil, 0o600); err != nil {
			return err
		}
		if err := os.MkdirAll(glusterctl.DaemonState, 0o755); err != nil {
			return err
		}
		if err := glusterctl.EncryptManagement(glusterctl.DaemonState); err != nil {
			return err
		}
	}
	if err := installCertificate(certificateDir(cert.Dir), a, d.Self, m.cfg.Now()); err != nil {
		return fmt.Errorf("certificate of the storage: %w", err)
	}
	return nil
}

// startAnew is there while glusterd has to be started anew to use TLS.
func (m *Manager) startAnew() string { return filepath.Join(m.cfg.Dir, tlsDir, "start-glusterd-anew") }

// renewEvery is how often a node that runs looks at its certificate.
const renewEvery = time.Hour

// renew replaces a certificate that ends soon. What runs takes it at its next
// start. It is called by keepChanging alone.
func (m *Manager) renew(ctx context.Context, d glusterctl.Desired) error {
	if !d.TLS || m.cfg.Now().Sub(m.renewed) < renewEvery {
		return nil
	}
	err := m.identify(ctx, d)
	if err == nil {
		m.renewed = m.cfg.Now()
	}
	return err
}

// secureAccess is the file that makes glusterds speak TLS with each other; see
// glusterctl.EncryptManagement.
const secureAccess = "secure-access"

// authority gives the pool's authority: that of this node's disk, a new one on
// the node that forms the pool, or that of another member.
func (m *Manager) authority(ctx context.Context, d glusterctl.Desired) (Authority, error) {
	a, err := readAuthority(m.cfg.Dir)
	if !errors.Is(err, errNoAuthority) {
		return a, err
	}
	switch {
	case d.Form:
		pair, err := cert.New(d.Volume, rand.Reader, m.cfg.Now())
		if err != nil {
			return Authority{}, err
		}
		a = Authority{Cert: pair.Cert, Key: pair.Key}
	case m.cfg.AskAuthority == nil:
		return Authority{}, fmt.Errorf("%w, and nobody can be asked for it", errNoAuthority)
	default:
		if a, err = m.cfg.AskAuthority(ctx); err != nil {
			return Authority{}, fmt.Errorf("ask another node for the authority of the storage's certificates: %w", err)
		}
		if _, err := a.pair().Issue(d.Self, rand.Reader, m.cfg.Now()); err != nil {
			return Authority{}, fmt.Errorf("another node's authority: %w", err)
		}
	}
	return a, a.write(m.cfg.Dir)
}

func (a Authority) pair() cert.Pair { return cert.Pair{Cert: a.Cert, Key: a.Key} }

// certificateDir is where the files go that GlusterFS reads in dir: where its
// link leads when dir is read-only, as in the image.
func certificateDir(dir string) string {
	if to, err := os.Readlink(filepath.Join(dir, "glusterfs.pem")); err == nil && filepath.IsAbs(to) {
		return filepath.Dir(to)
	}
	return dir
}

// installCertificate issues a certificate for this node and puts it where
// GlusterFS looks, unless a good one is there.
func installCertificate(dir string, a Authority, self string, now time.Time) error {
	read := func(name string) []byte {
		b, _, _ := durable.ReadFile(filepath.Join(dir, name), maxPEM, durable.Follow) // what cannot be read is made anew
		return b
	}
	have := read("glusterfs.pem")
	end, err := cert.Expires(have)
	if err == nil && end.Sub(now) > renewBefore && bytes.Equal(read("glusterfs.ca"), a.Cert) &&
		cert.Verify(a.Cert, have, self, now) == nil && cert.Matches(have, read("glusterfs.key")) {
		return nil
	}
	p, err := a.pair().Issue(self, rand.Reader, now)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := cert.Install(dir, a.Cert, p); err != nil {
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
			err = fmt.Errorf("%w; make links there to files that can be written: for f in pem key ca; do ln -s /etc/ssl/glusterfs.$f %s/; done", err, dir)
		}
		return err
	}
	return nil
}

// forgetIdentity removes what makes this node a member of a pool with TLS.
func (m *Manager) forgetIdentity() error {
	a, err := readAuthority(m.cfg.Dir)
	if errors.Is(err, errNoAuthority) {
		return nil
	}
	dir := certificateDir(cert.Dir)
	var faults []error
	if ca, err := os.ReadFile(filepath.Join(dir, "glusterfs.ca")); err == nil && bytes.Equal(ca, a.Cert) {
		for _, name := range []string{"glusterfs.pem", "glusterfs.key", "glusterfs.ca"} {
			faults = append(faults, remove(filepath.Join(dir, name)))
		}
	}
	faults = append(faults, remove(filepath.Join(glusterctl.DaemonState, secureAccess)), os.RemoveAll(filepath.Join(m.cfg.Dir, tlsDir)))
	return errors.Join(append(faults, err)...)
}

// CertificateEnds tells until when the certificate that GlusterFS of this machine
// has is good.
func CertificateEnds() (time.Time, error) {
	b, _, err := durable.ReadFile(filepath.Join(certificateDir(cert.Dir), "glusterfs.pem"), maxPEM, durable.Follow)
	if err != nil {
		return time.Time{}, err
	}
	return cert.Expires(b)
}
