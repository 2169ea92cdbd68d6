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

// Config of a Pool. ID, Address, Port, Dir and Key are required.
type Config struct {
	// ID is this master's name and the address that peers dial: option id without "_master". Address
	// is the local address on which the pool listens: option interface.
	ID, Address string
	Port        int    // cluster_pool_port
	Dir         string // cluster_pki_dir
	Key         *rsa.PrivateKey
	Pub         string // PEM of the public half of Key; "" lets complete derive it
	KeySize     int    // bits of the cluster key that a new cluster gets; option keysize
	KeyPass     string // passphrase of the cluster key; option cluster_key_pass

	Peers            []string // cluster_peers
	Secret           string   // cluster_secret
	AllowEmptySecret bool
	Fingerprint      string // cluster_pub_fingerprint: SHA-256 of cluster.pub in hexadecimal
	Suite            wire.Suite
	PublishSession   time.Duration

	// PlainPeers admits Salt's masters, which speak without TLS.
	PlainPeers bool
	// StateDir is a folder that only this master uses. In it the pool keeps what this master has
	// promised to Salt's masters. PlainPeers requires it.
	StateDir string

	Logger *slog.Logger     // nil discards all messages
	Now    func() time.Time // nil means time.Now

	control func(network, address string, c syscall.RawConn) error // prepares each socket of the pool; nil means hangUp
}

// Handler is the part of the master that a Pool reports to. Messages of one duty from one peer
// reach it in the order in which the peer sent them. Returns are the exception: several come at
// once. The pool counts a message as handled when the method that took it returns.
type Handler interface {
	// Keys sets the keys that are in force from now on: the cluster AES key and the seed of session
	// keys (hexadecimal).
	Keys(key crypt.Key, seed string) error
	// Event puts an event of a peer on the local bus, with Origin [event.Peer]. The handler must
	// not forward it again.
	Event(ctx context.Context, peer string, e event.Event) error
	// Publish sends a job that a peer published to our own minions, with the same job id. late
	// reports how late it comes.
	Publish(ctx context.Context, peer string, load *value.Map, late Late) error
	// JobReachedLate reports that a job of this master reached a peer only now, age after it was
	// published. LostJob reports a job that never reached a peer although the peer stayed up. Passed
	// returns how many jobs this master has published within the last age. None of the three may
	// block.
	JobReachedLate(load *value.Map, age time.Duration)
	LostJob(peer string, load *value.Map)
	Passed(age time.Duration) int
	// Return stores the return of a job. It must be durable before Return returns; after an error
	// the peer sends it again.
	Return(ctx context.Context, peer, tag string, load *value.Map) error
	// KeyChanged reports that a master set the key of a minion to this state. pub is empty when the
	// event does not carry the key. It is only a hint: the folder decides which state holds.
	// KeyChanged must not block.
	KeyChanged(id string, st wire.KeyState, pub string)
	// PeerSubscribed reports from which addresses minions subscribe at a peer, and the peer's own
	// address. PeerCutOff reports what minions may have missed there. Neither may block.
	PeerSubscribed(peer string, from netip.Addr, s Subs)
	PeerCutOff(peer string, cuts []Cut)
	// LearnStarts records minion processes that a peer saw or heard of, and returns those that were
	// not known here. KnownStarts returns the known processes, at most limit of them. Neither may
	// block.
	LearnStarts(peer string, starts []Start) (fresh []Start)
	KnownStarts(limit int) []Start
	// LearnNonces records requests of minions that a peer has taken, each by the digest that
	// Pool.Taken got. OwnNonces returns the digests of requests that this master has taken, at most
	// limit of them.
	LearnNonces(requests [][16]byte)
	OwnNonces(limit int) [][16]byte
	// PeerConnected reports that from now on SendData reaches a peer. PeerData gets what a peer sent
	// with SendData. Neither may block.
	PeerConnected(peer string)
	PeerData(peer string, b []byte)
	// PeerLost reports that the connection to a peer is lost, and when this master last heard the
	// peer.
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
	if c.Secret == "" && !c.AllowEmptySecret {
		return errors.New("cluster_secret is not set; without it anybody could join. Set it on all masters, or saltern_cluster_empty_secret: True to permit that")
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
// (salt/channel/server.py cluster_pub_matches_fingerprint), or nil when no key is pinned.
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

// dialAddress returns host:port of a master: the entry of cluster_peers that gives a port, else its
// name with the pool's port.
func (c *Config) dialAddress(id string) string {
	for _, p := range c.Peers {
		if peerName(p) == id && strings.Count(p, ":") == 1 {
			return p
		}
	}
	return net.JoinHostPort(id, fmt.Sprint(c.Port))
}
