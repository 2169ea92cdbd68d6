package cluster

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"saltern/master/cluster/wire"
	"saltern/master/crypt"
	"saltern/master/value"
)

// When the network between two masters is cut but a third master reaches both, the third relays
// their connection. The two masters use TLS with the same pinned keys as on the direct path, so the
// relay can neither read nor change anything. Duties, numbers and acknowledgements work as on the
// direct path.

const (
	directWait = 2 * time.Second // time for a direct dial while another master could relay
	maxPassed  = 64              // connections that this master relays; it refuses more
)

var errDirect = errors.New("the direct way is open again")

// between returns the links to Saltern masters that might relay to the master of l.
func (p *Pool) between(l *link) (list []*link) {
	if l.plain || l.stray {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range p.links {
		if o != l && !o.plain && o.up.Load() && o.relayPeer() == "" {
			list = append(list, o)
		}
	}
	return list
}

// relayPeer returns the name of the master that relays the link, or "" when the link is direct.
func (l *link) relayPeer() string {
	if by := l.relayedBy.Load(); by != nil {
		return *by
	}
	return ""
}

// openDirect opens a TCP connection to the link's master.
func (l *link) openDirect(limit time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: limit, KeepAliveConfig: keepAlive, Control: l.pool.cfg.control}
	if a, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(l.pool.cfg.Address, "0")); err == nil {
		d.LocalAddr = a // peers know this master by this address
	}
	return d.DialContext(l.ctx, "tcp", l.pool.cfg.dialAddress(l.id))
}

// secure performs the TLS handshake and verifies the key of the other end. If either fails, secure
// closes the connection.
func (l *link) secure(raw net.Conn, limit time.Duration) (net.Conn, error) {
	t := tls.Client(raw, l.pool.tls)
	ctx, cancel := context.WithTimeout(l.ctx, limit)
	defer cancel()

	err := t.HandshakeContext(ctx)
	if err != nil {
		err = fmt.Errorf("secure the connection: %w", err)
	}

	var pem string
	if err == nil {
		_, pem, err = endOf(t)
	}

	if err == nil && l.pub != "" && crypt.NormalizePEM(pem) != crypt.NormalizePEM(l.pub) {
		err = errPin
	}

	if err != nil {
		_ = raw.Close()
		return nil, err
	}

	return t, nil
}

// through connects to the link's master through another master, to which the link relay leads.
func (l *link) through(relay *link) (net.Conn, error) {
	raw, err := relay.openDirect(directWait)
	if err != nil {
		return nil, err
	}

	c, err := relay.secure(raw, handshakeWait)
	if err != nil {
		return nil, err
	}

	b, err := wire.AppendFrame(nil, wire.OwnPrefix+ownThrough, value.NewMap("to", l.id))
	if err == nil {
		_, err = c.Write(b)
	}

	if err != nil {
		_ = c.Close()
		return nil, err
	}

	return l.secure(c, handshakeWait)
}

// straight tries the direct path every ten seconds. Once the direct path works, straight calls end,
// which ends the relayed connection.
func (l *link) straight(ctx context.Context, end context.CancelCauseFunc) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Second):
		}

		raw, err := l.openDirect(directWait)
		if err != nil {
			continue
		}

		if c, err := l.secure(raw, handshakeWait); err == nil {
			_ = c.Close()
			end(errDirect)
			return
		}
	}
}

// relayConnection relays a member's connection to the member that data names, until either end
// closes.
func (k *conn) relayConnection(br *bufio.Reader, w net.Conn, data []byte) error {
	p := k.inbox.pool
	m, err := unpackOwnMap(data)
	if err != nil {
		return err
	}

	to := m.Str("to")
	if o, ok := p.view.Load().rec.Member(to); !ok || !o.Own || to == p.cfg.ID || to == k.id {
		return fmt.Errorf("%w: no way to %.64q", errOwn, to)
	}
	defer p.count.passed.Add(-1)

	if p.count.passed.Add(1) > maxPassed {
		return fmt.Errorf("%w: %d connections are passed on", errOwn, maxPassed)
	}

	d := net.Dialer{Timeout: directWait, KeepAliveConfig: keepAlive, Control: p.cfg.control}
	far, err := d.DialContext(p.ctx, "tcp", p.cfg.dialAddress(to))
	if err != nil {
		p.log.Debug("a master cannot be reached for another", "peer", k.id, "to", to, "error", err)
		return nil
	}
	defer far.Close()

	defer context.AfterFunc(p.ctx, func() { _ = far.Close() })()
	_ = w.SetDeadline(time.Time{})
	p.log.Info("two masters are connected through this one", "peer", k.id, "to", to)
	back := make(chan struct{})
	go func() {
		defer close(back)
		_, _ = io.Copy(w, far)
		_ = k.Close()
	}()

	_, _ = io.Copy(far, br)
	_ = far.Close()
	<-back
	return nil
}
