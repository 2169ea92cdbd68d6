package wire

import (
	"crypto/rsa"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"

	"saltern/master/crypt"
	"saltern/master/value"
)

// Announce sends peers the key that seals the events that this master forwards
// (salt/channel/server.py send_aes_key_event; tag cluster/peer/<id>). Each entry contains the key
// encrypted for one peer. If the sender does not know a peer's key, that peer's entry is empty.
type Announce struct {
	PeerID  string
	Entries []AnnounceEntry
	Stamp   string // see Discover.Stamp
}

// AnnounceEntry is the part of an Announce for one peer. In an empty entry AES is nil.
type AnnounceEntry struct {
	ID  string
	AES []byte // text of the session key, encrypted with OAEP
	Sig []byte // X9.31 signature of the hexadecimal SHA-256 of that text
}

func announceDigest(k crypt.Key) []byte {
	sum := sha256.Sum256([]byte(k.String()))
	return []byte(hex.EncodeToString(sum[:]))
}

// AnnounceSig returns the signature of an announcement. The signature is the same for every peer
// and at each call, so a caller should compute it only once.
func AnnounceSig(own *rsa.PrivateKey, session crypt.Key) ([]byte, error) {
	return crypt.X931Sign(own, announceDigest(session))
}

// NewAnnounceEntry encrypts the sender's session key for one peer. sig is the result of
// AnnounceSig.
func (s Suite) NewAnnounceEntry(to Peer, session crypt.Key, sig []byte) (AnnounceEntry, error) {
	pub, err := crypt.ParsePublic([]byte(to.Pub))
	if err != nil {
		return AnnounceEntry{}, fmt.Errorf("announce to %s: %w", to.ID, err)
	}
	ct, err := crypt.Encrypt(pub, s.Encryption, []byte(session.String()))
	if err != nil {
		return AnnounceEntry{}, fmt.Errorf("announce to %s: %w", to.ID, err)
	}
	return AnnounceEntry{ID: to.ID, AES: ct, Sig: sig}, nil
}

// Pack returns the data of the message.
func (a Announce) Pack() *value.Map {
	peers := value.NewMap()
	for _, e := range a.Entries {
		if e.AES == nil {
			peers.Set(e.ID, value.NewMap())
			continue
		}
		peers.Set(e.ID, value.NewMap("aes", e.AES, "sig", e.Sig))
	}
	m := value.NewMap("peer_id", a.PeerID, "peers", peers)
	if a.Stamp != "" {
		m.Set("_stamp", a.Stamp)
	}
	return m
}

// maxEntries bounds the entries of one announcement.
const maxEntries = 256

// ParseAnnounce parses an announcement without verifying it. sender is the sender's name in the
// tag; the content must contain the same name.
func ParseAnnounce(sender string, data []byte) (Announce, error) {
	m, err := decodeMap(data, strangerLimits)
	if err != nil {
		return Announce{}, err
	}

	a := Announce{PeerID: m.Str("peer_id"), Stamp: m.Str("_stamp")}
	if err := ValidPeer(a.PeerID); err != nil || a.PeerID != sender {
		return Announce{}, fmt.Errorf("%w: peer_id", errField)
	}

	peers := m.Map("peers")
	if peers.Len() > maxEntries {
		return Announce{}, fmt.Errorf("%w: %d peers", errField, peers.Len())
	}

	for k, v := range peers.All() {
		id, _ := k.(string)
		e, ok := v.(*value.Map)
		if id == "" || !ok {
			return Announce{}, fmt.Errorf("%w: peers", errField)
		}

		entry := AnnounceEntry{ID: id}
		entry.AES, _ = e.Bytes("aes")
		entry.Sig, _ = e.Bytes("sig")
		a.Entries = append(a.Entries, entry)
	}

	return a, nil
}

// Open returns the sender's session key from the entry for the master id. masterKey decrypts the
// session key, and sender, a PEM, verifies its signature. ok is false when the announcement has no
// entry for id, or an empty entry because the sender does not know that master's key.
func (s Suite) Open(a Announce, id string, masterKey *rsa.PrivateKey, sender string) (key crypt.Key, ok bool, err error) {
	for _, e := range a.Entries {
		if e.ID != id || e.AES == nil {
			continue
		}

		pub, err := crypt.ParsePublic([]byte(sender))
		if err != nil {
			return crypt.Key{}, false, fmt.Errorf("%w: %w", errField, err)
		}

		// Verify the signature, which is cheap, before decrypting. So a forged announcement costs
		// this master less time than its sender.
		digest, err := crypt.X931Recover(pub, e.Sig)
		if err != nil {
			return crypt.Key{}, false, fmt.Errorf("%w: session key: %w", ErrProof, err)
		}

		text, err := crypt.Decrypt(masterKey, s.Encryption, e.AES)
		if err != nil {
			return crypt.Key{}, false, fmt.Errorf("%w: session key: %w", ErrProof, err)
		}

		key, err := crypt.ParseKey(string(text))
		if err != nil {
			return crypt.Key{}, false, fmt.Errorf("%w: session key: %w", errField, err)
		}
		if subtle.ConstantTimeCompare(announceDigest(key), digest) != 1 {
			return crypt.Key{}, false, fmt.Errorf("%w: session key of another signature", ErrProof)
		}

		return key, true, nil
	}

	return crypt.Key{}, false, nil
}
