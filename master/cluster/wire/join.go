package wire

import (
	"crypto/rsa"
	"crypto/subtle"
	"errors"
	"fmt"

	"saltern/master/crypt"
	"saltern/master/msgpack"
	"saltern/master/value"
)

var (
	// ErrProof reports that a message does not authenticate its sender: a signature or a token does
	// not match, or a field cannot be decrypted.
	ErrProof = errors.New("message is not proven")
	// errField reports that a field is missing or has an unusable value.
	errField = errors.New("bad field")
)

const (
	// TokenLen is the length of the tokens that link an answer to its request.
	TokenLen = 32
	// maxToken bounds the tokens that other masters send.
	maxToken = 128
	maxPEM   = 4096
)

// Suite names the algorithms of the cluster's configuration
// (cluster_encryption_algorithm, publish_signing_algorithm).
type Suite struct {
	Encryption string // crypt.OAEPSHA1 or crypt.OAEPSHA224
	Signing    string // crypt.PKCS1SHA1 or crypt.PKCS1SHA224
}

// Discover asks a master for a proof that it belongs to the cluster. The signature of the Discover
// only proves that its sender has the private key to Pub.
type Discover struct {
	PeerID string
	Pub    string // PEM of the sender's master key
	Token  string
	// Own means that the sender is a Saltern master. Salt neither sends nor reads this field.
	Own bool
	// Stamp is the time in the envelope of a message that went through an event bus. It is not
	// signed. If it is "", the envelope has no time.
	Stamp string
}

// DiscoverReply answers a Discover. It is signed with the cluster's key.
type DiscoverReply struct {
	ReturnToken string // token of the Discover
	Token       string
	PeerID      string
	Pub         string // PEM of the sender's master key
	ClusterPub  string
	Own         bool
}

// Join asks for admission to the cluster. Its sender encrypts Secret and SessionKey, each together
// with the peer's token, with the peer's master key.
type Join struct {
	ReturnToken string // token of the DiscoverReply
	Token       string
	PeerID      string
	Secret      string // cluster_secret
	SessionKey  crypt.Key
	Pub         string
	Own         bool
}

// JoinReply admits a master and sends it the secrets of the cluster.
type JoinReply struct {
	ReturnToken string // token of the Join
	PeerID      string
	SessionKey  crypt.Key // session key of the sender
	ClusterKey  crypt.Key // AES key of the cluster
	ClusterPEM  []byte    // private key of the cluster, without a passphrase
	ClusterPub  string
	// Peers lists the other masters, with the PEM of their keys. Salt 3008.3 does not send this
	// field, but accepts it.
	Peers []Peer
}

// Peer is a master and its public key.
type Peer struct{ ID, Pub string }

// JoinNotify informs members about a new member. It is encrypted with the cluster's AES key.
type JoinNotify struct {
	PeerID     string // master that admitted the new one
	JoinPeerID string
	Pub        string
	SessionKey crypt.Key
}

// sealed returns the signed envelope of a message of the joining protocol.
func (s Suite) sealed(inner *value.Map, key *rsa.PrivateKey, stamp string) (*value.Map, error) {
	payload, err := msgpack.Marshal(inner, msgpack.Modern)
	if err != nil {
		return nil, err
	}
	sig, err := crypt.Sign(key, s.Signing, payload)
	if err != nil {
		return nil, err
	}
	m := value.NewMap("sig", sig, "payload", payload)
	if stamp != "" {
		m.Set("_stamp", stamp)
	}
	return m, nil
}

// envelope is a parsed envelope whose signature is not verified yet.
type envelope struct {
	*value.Map
	payload, sig []byte
	stamp        string
}

func openEnvelope(data []byte) (envelope, error) {
	outer, err := decodeMap(data, strangerLimits)
	if err != nil {
		return envelope{}, err
	}
	e := envelope{stamp: outer.Str("_stamp")}
	var ok1, ok2 bool
	e.payload, ok1 = outer.Bytes("payload")
	e.sig, ok2 = outer.Bytes("sig")
	if !ok1 || !ok2 {
		return envelope{}, fmt.Errorf("%w: no payload or signature", errField)
	}
	e.Map, err = decodeMap(e.payload, strangerLimits)
	return e, err
}

func (s Suite) verify(e envelope, pem string) error {
	pub, err := crypt.ParsePublic([]byte(pem))
	if err != nil {
		return fmt.Errorf("%w: %w", errField, err)
	}
	if err := crypt.Verify(pub, s.Signing, e.payload, e.sig); err != nil {
		return fmt.Errorf("%w: %w", ErrProof, err)
	}
	return nil
}

// readTexts reads the name of a master, its PEM, and other fields that must be short texts.
func (e envelope) readTexts(peer *string, pub *string, tokens ...field) error {
	*peer = e.Str("peer_id")
	if err := ValidPeer(*peer); err != nil {
		return fmt.Errorf("%w: peer_id: %w", errField, err)
	}

	if pub != nil {
		if *pub = e.Str("pub"); *pub == "" || len(*pub) > maxPEM {
			return fmt.Errorf("%w: pub", errField)
		}
	}

	for _, f := range tokens {
		if *f.to = e.Str(f.name); *f.to == "" || len(*f.to) > maxToken {
			return fmt.Errorf("%w: %s", errField, f.name)
		}
	}

	return nil
}

type field struct {
	name string
	to   *string
}

// Seal packs a Discover and signs it with the sender's master key.
func (d Discover) Seal(s Suite, key *rsa.PrivateKey) (*value.Map, error) {
	m := value.NewMap("peer_id", d.PeerID, "pub", d.Pub, "token", d.Token)
	markOwn(m, d.Own)
	return s.sealed(m, key, d.Stamp)
}

func markOwn(m *value.Map, is bool) {
	if is {
		m.Set("saltern", 1)
	}
}

func isOwn(m *value.Map) bool { n, _ := m.Int("saltern"); return n >= 1 }

// OpenDiscover parses a Discover and verifies that its sender has the private key to the public key
// in it.
func (s Suite) OpenDiscover(data []byte) (Discover, error) {
	e, err := openEnvelope(data)
	if err != nil {
		return Discover{}, err
	}
	d := Discover{Own: isOwn(e.Map), Stamp: e.stamp}
	if err := e.readTexts(&d.PeerID, &d.Pub, field{"token", &d.Token}); err != nil {
		return Discover{}, err
	}
	return d, s.verify(e, d.Pub)
}

// Seal packs a DiscoverReply and signs it with the cluster's key.
func (d DiscoverReply) Seal(s Suite, cluster *rsa.PrivateKey) (*value.Map, error) {
	m := value.NewMap("return_token", d.ReturnToken, "token", d.Token, "peer_id", d.PeerID, "pub", d.Pub,
		"cluster_pub", d.ClusterPub)
	markOwn(m, d.Own)
	return s.sealed(m, cluster, "")
}

// OpenDiscoverReply parses a DiscoverReply and verifies its signature with the ClusterPub in it.
// The caller must check that ClusterPub is the cluster's key, and that ReturnToken is the token of
// the caller's Discover.
func (s Suite) OpenDiscoverReply(data []byte) (DiscoverReply, error) {
	e, err := openEnvelope(data)
	if err != nil {
		return DiscoverReply{}, err
	}
	d := DiscoverReply{Own: isOwn(e.Map)}
	if err := e.readTexts(&d.PeerID, &d.Pub, field{"token", &d.Token},
		field{"return_token", &d.ReturnToken}); err != nil {
		return DiscoverReply{}, err
	}
	if d.ClusterPub = e.Str("cluster_pub"); len(d.ClusterPub) > maxPEM {
		return DiscoverReply{}, fmt.Errorf("%w: cluster_pub", errField)
	}
	return d, s.verify(e, d.ClusterPub)
}

// Seal packs a Join, encrypts its secrets for the owner of the PEM recipient, and signs it with the
// sender's master key.
func (j Join) Seal(s Suite, key *rsa.PrivateKey, recipient string) (*value.Map, error) {
	pub, err := crypt.ParsePublic([]byte(recipient))
	if err != nil {
		return nil, err
	}

	secret, err := crypt.Encrypt(pub, s.Encryption, []byte(j.ReturnToken+j.Secret))
	if err != nil {
		return nil, fmt.Errorf("encrypt cluster_secret, which may have %d bytes at most: %w",
			MaxSecret(pub, s.Encryption), err)
	}

	session, err := crypt.Encrypt(pub, s.Encryption, []byte(j.ReturnToken+j.SessionKey.String()))
	if err != nil {
		return nil, err
	}

	m := value.NewMap("return_token", j.ReturnToken, "token", j.Token, "peer_id", j.PeerID, "secret", secret,
		"key", session, "pub", j.Pub)
	markOwn(m, j.Own)
	return s.sealed(m, key, "")
}

// MaxSecret returns the greatest length in bytes of a cluster_secret that can be encrypted with
// this key: it is the capacity of OAEP with this key, less the length of the token.
func MaxSecret(pub *rsa.PublicKey, algo string) int {
	h, err := crypt.EncryptionHash(algo)
	if err != nil {
		return 0
	}
	return pub.Size() - 2*h.Size() - 2 - TokenLen
}

// OpenJoin parses a Join, verifies it with the key in its field Pub, and decrypts it with key, the
// receiver's master key. The caller must then check Pub, ReturnToken and Secret.
func (s Suite) OpenJoin(data []byte, key *rsa.PrivateKey) (Join, error) {
	e, err := openEnvelope(data)
	if err != nil {
		return Join{}, err
	}

	j := Join{Own: isOwn(e.Map)}
	if err := e.readTexts(&j.PeerID, &j.Pub, field{"token", &j.Token},
		field{"return_token", &j.ReturnToken}); err != nil {
		return Join{}, err
	}

	if err := s.verify(e, j.Pub); err != nil {
		return Join{}, err
	}

	secret, err := s.unwrap(e.Map, "secret", key, j.ReturnToken)
	if err != nil {
		return Join{}, err
	}

	j.Secret = string(secret)
	j.SessionKey, err = s.unwrapKey(e.Map, "key", key, j.ReturnToken)
	return j, err
}

// unwrap decrypts a field, and removes the token with which the plaintext must begin.
func (s Suite) unwrap(m *value.Map, name string, key *rsa.PrivateKey, token string) ([]byte, error) {
	ct, ok := m.Bytes(name)
	if !ok {
		return nil, fmt.Errorf("%w: %s", errField, name)
	}
	plain, err := crypt.Decrypt(key, s.Encryption, ct)
	if err != nil || len(plain) < len(token) || subtle.ConstantTimeCompare(plain[:len(token)], []byte(token)) != 1 {
		return nil, fmt.Errorf("%w: %s", ErrProof, name)
	}
	return plain[len(token):], nil
}

func (s Suite) unwrapKey(m *value.Map, name string, key *rsa.PrivateKey, token string) (crypt.Key, error) {
	text, err := s.unwrap(m, name, key, token)
	if err != nil {
		return crypt.Key{}, err
	}
	k, err := crypt.ParseKey(string(text))
	if err != nil {
		return crypt.Key{}, fmt.Errorf("%w: %s: %w", errField, name, err)
	}
	return k, nil
}

// Seal packs a JoinReply, encrypts its secrets for the owner of the PEM recipient, and signs it
// with the sender's master key.
func (j JoinReply) Seal(s Suite, key *rsa.PrivateKey, recipient string) (*value.Map, error) {
	pub, err := crypt.ParsePublic([]byte(recipient))
	if err != nil {
		return nil, err
	}

	once, err := crypt.NewKey(nil)
	if err != nil {
		return nil, err
	}

	m := value.NewMap("return_token", j.ReturnToken, "peer_id", j.PeerID)
	for _, f := range []struct {
		name string
		key  crypt.Key
	}{{"aes", j.SessionKey}, {"cluster_aes", j.ClusterKey}, {"cluster_key_session", once}} {
		ct, err := crypt.Encrypt(pub, s.Encryption, []byte(j.ReturnToken+f.key.String()))
		if err != nil {
			return nil, err
		}
		m.Set(f.name, ct)
	}

	m.Set("cluster_pem", once.SealPlain(j.ClusterPEM))
	m.Set("cluster_pub", j.ClusterPub)
	peers := value.NewMap()
	for _, p := range j.Peers {
		peers.Set(p.ID, p.Pub)
	}

	m.Set("peers", peers)
	return s.sealed(m, key, "")
}

// OpenJoinReply verifies a JoinReply with peerPub, the PEM of the peer that the receiver asked, and
// decrypts it with key, the receiver's master key. token is the token of the receiver's Join; if
// the reply contains another token, OpenJoinReply returns ErrProof.
func (s Suite) OpenJoinReply(data []byte, key *rsa.PrivateKey, peerPub, token string) (JoinReply, error) {
	e, err := openEnvelope(data)
	if err != nil {
		return JoinReply{}, err
	}

	var j JoinReply
	if err := e.readTexts(&j.PeerID, nil, field{"return_token", &j.ReturnToken}); err != nil {
		return JoinReply{}, err
	}

	if err := s.verify(e, peerPub); err != nil {
		return JoinReply{}, err
	}
	if subtle.ConstantTimeCompare([]byte(j.ReturnToken), []byte(token)) != 1 {
		return JoinReply{}, fmt.Errorf("%w: answer to another question", ErrProof)
	}

	if j.SessionKey, err = s.unwrapKey(e.Map, "aes", key, token); err != nil {
		return JoinReply{}, err
	}

	if j.ClusterKey, err = s.unwrapKey(e.Map, "cluster_aes", key, token); err != nil {
		return JoinReply{}, err
	}

	once, err := s.unwrapKey(e.Map, "cluster_key_session", key, token)
	if err != nil {
		return JoinReply{}, err
	}

	blob, _ := e.Bytes("cluster_pem")
	if j.ClusterPEM, err = once.OpenPlain(blob); err != nil {
		return JoinReply{}, fmt.Errorf("%w: cluster_pem", ErrProof)
	}

	j.ClusterPub = e.Str("cluster_pub")
	for k, v := range e.Map.Map("peers").All() {
		id, _ := k.(string)
		pub, _ := v.(string)
		if ValidPeer(id) != nil || pub == "" || len(pub) > maxPEM {
			return JoinReply{}, fmt.Errorf("%w: peers", errField)
		}
		j.Peers = append(j.Peers, Peer{id, pub})
	}

	return j, nil
}

// Peek returns the name of the sender in an envelope of the joining protocol, without verifying it.
// The caller needs the name to find the key that verifies the envelope.
func Peek(data []byte) (peerID string, err error) {
	e, err := openEnvelope(data)
	if err != nil {
		return "", err
	}
	return e.Str("peer_id"), ValidPeer(e.Str("peer_id"))
}

// Seal packs a JoinNotify and encrypts it with the cluster's AES key.
func (n JoinNotify) Seal(cluster crypt.Key) ([]byte, error) {
	body, err := msgpack.Marshal(value.NewMap("peer_id", n.PeerID, "join_peer_id", n.JoinPeerID, "pub",
		n.Pub, "aes", n.SessionKey.String()),
		msgpack.Raw)
	if err != nil {
		return nil, err
	}
	return cluster.Seal(body, ""), nil
}

// OpenJoinNotify decrypts a JoinNotify with one of the cluster's AES keys, the current or the
// previous one.
func OpenJoinNotify(data []byte, cluster ...crypt.Key) (JoinNotify, error) {
	body, err := openBlob(data, cluster)
	if err != nil {
		return JoinNotify{}, err
	}

	m, err := decodeMap(body, strangerLimits)
	if err != nil {
		return JoinNotify{}, err
	}

	n := JoinNotify{PeerID: m.Str("peer_id"), JoinPeerID: m.Str("join_peer_id"), Pub: m.Str("pub")}
	if err := errors.Join(ValidPeer(n.PeerID), ValidPeer(n.JoinPeerID)); err != nil {
		return JoinNotify{}, fmt.Errorf("%w: %w", errField, err)
	}

	if _, err := crypt.ParsePublic([]byte(n.Pub)); err != nil {
		return JoinNotify{}, fmt.Errorf("%w: pub: %w", errField, err)
	}

	if n.SessionKey, err = crypt.ParseKey(m.Str("aes")); err != nil {
		return JoinNotify{}, fmt.Errorf("%w: aes: %w", errField, err)
	}

	return n, nil
}

func openBlob(data []byte, keys []crypt.Key) ([]byte, error) {
	blob, err := decodeBlob(data)
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		if body, err := k.Open(blob); err == nil {
			return body, nil
		}
	}
	return nil, fmt.Errorf("%w: sealed with another key", ErrProof)
}
