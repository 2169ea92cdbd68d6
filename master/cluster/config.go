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
	// ID is this master's name, which is also the address that peers dial:
	// option id without "_master". Address is where it listens (interface).
	ID, Address string
	Port        int    // cluster_pool_port
	Dir         string // cluster_pki_dir
	Key         *rsa.PrivateKey
	Pub         string // PEM of Key; "" to be made
	KeySize     int    // of a new cluster key, option keysize
	KeyPass     string // cluster_key_pass

	Peers            []string // cluster_peers
	Secret           string   // cluster_secret
	AllowEmptySecret bool
	Fingerprint      string // cluster_pub_fingerprint: SHA-256 of cluster.pub in hexadecimal
	Suite            wire.Suite
	PublishSession   time.Duration

	// PlainPeers permits Salt's masters, which speak without TLS.
	PlainPeers bool
	// StateDir is a folder of this master alone for what it has promised
	// Salt's masters; required with PlainPeers.
	StateDir string

	Logger *slog.Logger     // nil discards
	Now    func() time.Time // nil means time.Now

	control func(network, address string, c syscall.RawConn) error // of sockets; nil means hangUp
}

// Handler is what the pool needs of the master. All functions are required.
// Those that take messages are called in the order of sending for each peer
// and duty, except for returns, of which several come at once; a message
// counts as handled when they return.
type Handler interface {
	// Keys hands over the keys that are in force from now on: the cluster
	// AES key and the seed of session keys (hexadecimal).
	Keys(key crypt.Key, seed string) error
	// Event brings an event of a peer for the local bus, with Origin [event.Peer]. It
	// must not be forwarded again.
	Event(ctx context.Context, peer string, e event.Event) error
	// Publish brings a job that a peer has published, to be sent to our
	// minions with the same job id. It may come late.
	Publish(ctx context.Context, peer string, load *value.Map, late Late) error
	// JobReachedLate says that a job of this master has reached a peer only now. LostJob says
	// that one has never reached a peer that was there all the time. Passed counts what was
	// published here within an age. They must be quick.
	JobReachedLate(load *value.Map, age time.Duration)
	LostJob(peer string, load *value.Map)
	Passed(age time.Duration) int
	// Return brings the return of a job. It must be durable before Return
	// returns; an error has it sent again.
	Return(ctx context.Context, peer, tag string, load *value.Map) error
	// KeyChanged says that a master has, or has given, the key of a minion this
	// state; pub is empty where the event does not have it. The truth is on the
	// folder. It must not block.
	KeyChanged(id string, st wire.KeyState, pub string)
	// PeerSubscribed brings who listens at a peer, and the peer's address. PeerCutOff brings
	// subscriptions that ended at a peer and may miss jobs. They must be quick.
	PeerSubscribed(peer string, from netip.Addr, s Subs)
	PeerCutOff(peer string, cuts []Cut)
	// LearnStarts brings processes of minions that a peer has seen or was told of, and returns
	// those that were not known. KnownStarts returns all, at most so many. They must be quick.
	LearnStarts(peer string, starts []Start) (fresh []Start)
	KnownStarts(most int) []Start
	// LearnNonces brings requests of minions that a peer has taken, as Pool.Taken names them.
	// OwnNonces returns those that were taken here, at most so many.
	LearnNonces(requests [][16]byte)
	OwnNonces(most int) [][16]byte
	// PeerConnected says that SendData reaches a peer from now on. PeerData brings what a peer
	// has sent with it. They must be quick.
	PeerConnected(peer string)
	PeerData(peer string, b []byte)
	// PeerLost says that a peer is not there any more, and when it was last heard.
	PeerLost(peer string, heard time.Time)
	// Removed says that this master was removed and must stop serving.
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

// fingerprint reports whether a PEM is the pinned one (salt/channel/server.py
// cluster_pub_matches_fingerprint); nil when none is pinned.
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

// dialAddress is where a master listens: its name, or what cluster_peers says
// about it.
func (c *Config) dialAddress(id string) string {
	for _, p := range c.Peers {
		if peerName(p) == id && strings.Count(p, ":") == 1 {
			return p
		}
	}
	return net.JoinHostPort(id, fmt.Sprint(c.Port))
}
