package cluster

import (
	"cmp"
	"context"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"saltern/master/cluster/wire"
	"saltern/master/crypt"
	"saltern/master/event"
	"saltern/master/value"
)

// Config configures a Pool. ID, Address, Port, Dir and Key are required.
type Config struct {
	// ID is this master's name and the address that peers dial: option id without "_master".
	// Address is the local address on which the pool listens: option interface.
	ID, Address string
	Port        int    // cluster_pool_port
	Dir         string // cluster_pki_dir
	Key         *rsa.PrivateKey
	Pub         string // PEM of the public half of Key; if Pub is "", the method complete derives it from Key
	KeySize     int    // bits of the cluster key that a new cluster gets; option keysize
	KeyPass     string // passphrase of the cluster key; option cluster_key_pass

	Peers []string // cluster_peers
	// Secret is the option cluster_secret. Without it, a joining master proves itself by the record
	// in Dir; see [node.Config].
	Secret           string
	AllowEmptySecret bool
	Fingerprint      string // cluster_pub_fingerprint: SHA-256 of cluster.pub in hexadecimal
	Suite            wire.Suite
	PublishSession   time.Duration

	// PlainPeers admits Salt's masters, which connect without TLS.
	PlainPeers bool
	// StateDir is a folder that only this master uses. The pool stores there the promises that this
	// master made to Salt's masters in their consensus. PlainPeers requires StateDir.
	StateDir string

	Logger *slog.Logger     // nil discards all messages
	Now    func() time.Time // nil means time.Now

	control func(network, address string, c syscall.RawConn) error // prepares each socket of the pool; nil means hangUp
}

// Handler is the part of the master that a Pool calls. The pool passes the messages of one [Duty]
// from one peer to the handler in the order in which the peer sent them. Returns are the exception:
// the pool may call Return several times at once. The pool counts a message as handled when the
// called method returns.
type Handler interface {
	// Keys sets the keys that are in force from now on: the cluster AES key and the seed of session
	// keys (hexadecimal).
	Keys(key crypt.Key, seed string) error
	// Event puts an event of a peer on the local bus, with Origin [event.Peer]. The handler must
	// not forward it again.
	Event(ctx context.Context, peer string, e event.Event) error
	// Publish sends a job that a peer published to this master's own minions, with the same job id.
	// late describes how late the job arrives.
	Publish(ctx context.Context, peer string, load *value.Map, late Late) error
	// The pool calls JobReachedLate when a job of this master reached a peer late: only age after
	// the job was published. It calls LostJob when a job never reached a peer although the peer
	// stayed up. Passed returns how many jobs this master has published within the last age. None
	// of the three may block.
	JobReachedLate(load *value.Map, age time.Duration)
	LostJob(peer string, load *value.Map)
	Passed(age time.Duration) int
	// Return stores the return of a job. The return must be durable when Return returns nil. After
	// an error the peer sends the return again.
	Return(ctx context.Context, peer, tag string, load *value.Map) error
	// The pool calls KeyChanged when another master has set the key of a minion to state st. pub is
	// empty when the event does not carry the key. The call is only a hint: the handler must read
	// the valid state from the shared folder. KeyChanged must not block.
	KeyChanged(id string, st wire.KeyState, pub string)
	// The pool calls PeerSubscribed with the addresses from which minions subscribe at a peer, and
	// with the peer's own address. It calls PeerCutOff with the publishes that minions of the peer
	// may have missed. Neither method may block.
	PeerSubscribed(peer string, from netip.Addr, s Subs)
	PeerCutOff(peer string, cuts []Cut)
	// LearnStarts records minion processes that a peer reported, and returns those that this master
	// did not know. KnownStarts returns the known processes, at most limit of them. Neither may
	// block.
	LearnStarts(peer string, starts []Start) (fresh []Start)
	KnownStarts(limit int) []Start
	// LearnNonces records the minions' requests that a peer has accepted, each by the digest that
	// the peer passed to Pool.Taken. OwnNonces returns the digests of requests that this master has
	// accepted, at most limit of them.
	LearnNonces(requests [][16]byte)
	OwnNonces(limit int) [][16]byte
	// The pool calls PeerConnected when a peer becomes reachable for SendData, and PeerData for
	// each message that a peer sent with SendData. Neither method may block.
	PeerConnected(peer string)
	PeerData(peer string, b []byte)
	// The pool calls PeerLost when the connection to a peer is lost. heard is the time at which
	// this master last received data from the peer.
	PeerLost(peer string, heard time.Time)
	// Removed reports that this master was removed from the cluster. The master must stop serving.
	Removed()
}

func (c *Config) complete() error {
	c.ID = strings.TrimSuffix(c.ID, "_master")
	if err := wire.ValidPeer(c.ID); err != nil {
		return fmt.Errorf("id of a master in a cluster must be its address or host name: %w", err)
	}
	if c.Key == nil || c.Dir == "" {
		return errors.New("cluster: no key or no folder")
	}

	if a, err := netip.ParseAddr(c.Address); err != nil || a.IsUnspecified() {
		return fmt.Errorf("interface must be an address of this master in a cluster, not %q", c.Address)
	}

	if c.Pub == "" {
		var err error
		if c.Pub, err = crypt.PublicPEM(&c.Key.PublicKey); err != nil {
			return err
		}
	}

	if c.control == nil {
		c.control = hangUp
	}

	c.Suite.Encryption = cmp.Or(c.Suite.Encryption, crypt.OAEPSHA1)
	c.Suite.Signing = cmp.Or(c.Suite.Signing, crypt.PKCS1SHA1)
	if c.Secret == "" && !c.AllowEmptySecret && c.PlainPeers {
		return errors.New("cluster_secret is not set, and Salt's masters can prove themselves by nothing else. Set it on all masters, or saltern_cluster_empty_secret: True to let anybody join")
	}

	if n := wire.MaxSecret(&c.Key.PublicKey, c.Suite.Encryption); len(c.Secret) > n {
		return fmt.Errorf("cluster_secret is longer than the %d bytes that masters can exchange", n)
	}

	if c.Fingerprint != "" {
		c.Fingerprint = strings.ToLower(strings.ReplaceAll(strings.TrimSpace(c.Fingerprint), ":", ""))
		if b, err := hex.DecodeString(c.Fingerprint); err != nil || len(b) != sha256.Size {
			return errors.New("cluster_pub_fingerprint is not a SHA-256 in hexadecimal")
		}
	}

	for _, p := range c.Peers {
		if err := wire.ValidPeer(peerName(p)); err != nil {
			return fmt.Errorf("cluster_peers: %.60q: %w", p, err)
		}
	}

	if c.PlainPeers && c.StateDir == "" {
		return errors.New("cluster: no folder for what was promised to Salt's masters")
	}

	c.Port = cmp.Or(c.Port, 4520)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}

	return nil
}

// fingerprint returns a function that reports whether a PEM is the pinned cluster key
// (salt/channel/server.py cluster_pub_matches_fingerprint). fingerprint returns nil when no key is
// pinned.
func (c *Config) fingerprint() func(string) bool {
	if c.Fingerprint == "" {
		return nil
	}
	return func(pem string) bool {
		for _, text := range []string{pem, strings.TrimSpace(pem), strings.TrimSpace(pem) + "\n"} {
			sum := sha256.Sum256([]byte(text))
			if subtle.ConstantTimeCompare([]byte(hex.EncodeToString(sum[:])), []byte(c.Fingerprint)) == 1 {
				return true
			}
		}
		return false
	}
}

// dialAddress returns host:port of a master. It takes both from the entry of cluster_peers if the
// entry contains a port; otherwise it joins the master's name and the pool's port.
func (c *Config) dialAddress(id string) string {
	for _, p := range c.Peers {
		if peerName(p) == id && strings.Count(p, ":") == 1 {
			return p
		}
	}
	return net.JoinHostPort(id, fmt.Sprint(c.Port))
}
