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
	// SentLate says that a job of this master has reached a peer only now; Lost jobs have never
	// reached one that was there all the time. Passed counts what was published here within an
	// age. They must be quick.
	SentLate(load *value.Map, age time.Duration)
	LostJob(peer string, load *value.Map)
	Passed(age time.Duration) int
	// Return brings the return of a job. It must be durable before Return
	// returns; an error has it sent again.
	Return(ctx context.Context, peer, tag string, load *value.Map) error
	// KeyChanged says that a master has, or has given, the key of a minion this
	// state; pub is empty where the event does not have it. The truth is on the
	// folder. It must not block.
	KeyChanged(id string, st wire.KeyState, pub string)
	// Subscribed brings who listens at a peer, and its address; CutOff what minions may miss
	// by what was seen there. They must be quick.
	Subscribed(peer string, from netip.Addr, s Subs)
	CutOff(peer string, cuts []Cut)
	// Started brings processes of minions that a peer has seen or was told of, and returns
	// those that were not known; AllStarted gives all, at most so many. They must be quick.
	Started(peer string, starts []Start) (fresh []Start)
	AllStarted(most int) []Start
	// Taken brings requests of minions that a peer has taken, as Pool.Taken
	// names them; AllTaken gives those that were taken here, at most so many.
	Taken(requests [][16]byte)
	AllTaken(most int) [][16]byte
	// Connected says that what SendData takes reaches a peer from now on; Data brings
	// what a peer has sent so. They must be quick.
	Connected(peer string)
	Data(peer string, b []byte)
	// Lost says that a peer is not there any more, and when it was last heard.
	Lost(peer string, heard time.Time)
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
