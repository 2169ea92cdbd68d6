package storage

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"time"

	"saltern/glusterctl"
	"saltern/glusterctl/cert"
	"saltern/glusterctl/cli"
)

// dialMember returns nil if the glusterd at address accepts connections. In a pool with TLS, a
// glusterd that is not yet a member must use TLS. Debian's package may have started it without TLS,
// before its machine had a certificate, and a probe of such a peer would hang.
func (m *Manager) dialMember(ctx context.Context, address string) error {
	m.mu.Lock()
	secure := m.table.StorageTLS && m.obs != nil && !m.inPool(address)
	m.mu.Unlock()
	return dialDaemon(ctx, net.JoinHostPort(address, glusterctl.Port), secure)
}

// inPool reports whether the observed pool has a member with that address. The caller holds mu.
func (m *Manager) inPool(address string) bool {
	name := ""
	for _, n := range m.table.Nodes {
		if n.Address == address || n.Name == address {
			name, address = n.Name, n.Address
			break
		}
	}
	return name == m.cfg.Self || slices.ContainsFunc(m.obs.Pool, func(p cli.Peer) bool {
		return p.Hostname == address || p.Hostname == name || slices.Contains(p.Names, address) ||
			slices.Contains(p.Names, name)
	})
}

func dialDaemon(ctx context.Context, address string, secure bool) error {
	tcp, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(tcp, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()

	if !secure {
		return nil
	}

	dir := certificateDir(cert.Dir)
	own, err := tls.LoadX509KeyPair(filepath.Join(dir, "glusterfs.pem"), filepath.Join(dir, "glusterfs.key"))
	if err != nil {
		return fmt.Errorf("certificate of the storage: %w", err)
	}

	ctx, cancel = context.WithTimeout(ctx, 5*time.Second)
	defer cancel()

	c := tls.Client(conn, &tls.Config{
		Certificates:       []tls.Certificate{own},
		InsecureSkipVerify: true, // glusterd verifies its peers itself
		MinVersion:         tls.VersionTLS12,
	})
	if err := c.HandshakeContext(ctx); err != nil {
		return errors.Join(errors.New("glusterd there does not use TLS yet"), err)
	}

	return nil
}
