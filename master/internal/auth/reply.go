package auth

import (
	"context"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/netip"

	"saltern/master/crypt"
	"saltern/master/msgpack"
	"saltern/master/value"
)

// answer is the reply to a sign-in.
type answer struct {
	payload  any
	act      string // Act of the event to fire, or "" for none
	accepted bool   // the payload contains the session key and the publish key
	process  Process
}

// Process identifies a process of a minion: it is a digest of the process's token, or 0 if the
// process sent no token. A minion creates a token when it starts and sends the same token at each
// sign-in (salt/crypt.py AsyncAuth.__singleton_init__). A minion that does not know the master's
// key yet sends no token.
//
// A minion stores its token by master and by its own key (_auth_singleton_key). So it uses a
// different token for each master in its list, and creates another token in the run in which it
// generates its key. salt-call creates its own token.
type Process uint64

// processOf returns the Process of a decrypted token.
func processOf(token []byte) Process {
	sum := sha256.Sum256(append([]byte("process "), token...))
	return Process(binary.BigEndian.Uint64(sum[:]))
}

// answer returns the answer for a verdict. It waits for a slot of the gates before the RSA work, so
// that minions without an accepted key, and minions that sign in too often, get at most half of the
// workers.
func (s *Service) answer(ctx context.Context, r request, v verdict, from netip.AddrPort) *answer {
	if !v.wasAccepted || !s.pace.skipsQueue(r.id, s.fromOwnAddress(r.id, from), s.cfg.Secrets.cfg.Now()) {
		leave, err := s.strangers.waitSlot(ctx)
		if err != nil {
			return &answer{payload: busyText}
		}
		defer leave()
	}

	leave, err := s.known.waitSlot(ctx)
	if err != nil {
		return &answer{payload: busyText}
	}
	defer leave()

	if v.act != ActAccept {
		return &answer{payload: s.verdictReply(r, v.ret), act: v.act}
	}

	m, process, err := s.acceptedMap(r, v, from)
	if errors.Is(err, crypt.ErrAlgorithm) {
		s.log.Info("sign-in with an unsupported encryption algorithm", "minion", r.id, "peer", from)
		return &answer{payload: unsigned("bad enc algo")}
	}
	if err != nil {
		s.log.Error("answering a sign-in", "minion", r.id, "peer", from, "error", err)
		return &answer{payload: s.verdictReply(r, false)}
	}
	if r.version < 2 {
		return &answer{m, v.act, true, process}
	}

	m.Set("nonce", r.nonce)
	return &answer{s.signedMap(m, r.sigAlgo), v.act, true, process}
}

// fromOwnAddress reports whether the last authenticated request of an id came from the address of
// peer. If Config.Presence is nil, it returns true.
func (s *Service) fromOwnAddress(id string, peer netip.AddrPort) bool {
	if s.cfg.Presence == nil {
		return true
	}
	a, _, ok := s.cfg.Presence.LastRequest(id)
	return ok && a.Unmap() == peer.Addr().Unmap()
}

// verdictReply returns the answer to a minion that gets no keys: ret, signed if the protocol
// version of the request has signatures.
func (s *Service) verdictReply(r request, ret any) any {
	if r.version < 2 {
		return unsigned(ret)
	}
	return s.signedMap(value.NewMap("ret", ret, "nonce", r.nonce), r.sigAlgo)
}

// signedMap packs m and returns it together with a signature over exactly the packed bytes.
func (s *Service) signedMap(m *value.Map, algo string) any {
	load, err := msgpack.Marshal(m, msgpack.Raw)
	if err == nil {
		var sig []byte
		if sig, err = s.cfg.Secrets.Sign(algo, load); err == nil {
			return value.NewMap("enc", "clear", "load", load, "sig", sig)
		}
	}
	s.log.Error("signing an answer", "error", err)
	return busyText
}

// acceptedMap returns the answer with the keys for an accepted minion (master.py _auth_impl).
func (s *Service) acceptedMap(r request, v verdict, from netip.AddrPort) (m *value.Map, p Process, err error) {
	if _, err := crypt.EncryptionHash(r.encAlgo); err != nil {
		return nil, 0, err
	}

	sec := s.cfg.Secrets
	m = value.NewMap("enc", "pub", "pub_key", sec.Public(), "publish_port", s.cfg.PublishPort)
	if sig := sec.pubSigs[r.sigAlgo]; sig != "" {
		m.Set("pub_sig", sig)
	}

	if r.token != nil {
		var token []byte
		if token, p, err = s.returnToken(r, v.pub); err != nil {
			// As in Salt, an answer to a bad token contains no token. A minion that knows the
			// master's key refuses such an answer.
			s.badTokens.logLimited(s.log, slog.LevelWarn, "token of a sign-in does not open", "minion", r.id, "peer", from)
		} else {
			m.Set("token", token)
		}
	}

	key, digest := sec.currentKey()
	shared, err := crypt.Encrypt(v.pub, r.encAlgo, []byte(key.String()))
	if err != nil {
		return nil, 0, err
	}

	own, err := sec.newSession(r.id, v.pem)
	if err != nil {
		return nil, 0, err
	}

	session, err := crypt.Encrypt(v.pub, r.encAlgo, []byte(own.String()))
	if err != nil {
		return nil, 0, err
	}

	m.Set("aes", shared)
	m.Set("session", session)
	m.Set("sig", digest)
	return m, p, nil
}

var errToken = errors.New("token has not the form of a key")

// returnToken decrypts a token with the master's key and encrypts it for the minion, so that the
// minion can verify that the master has that key. returnToken returns only tokens in the form of a
// symmetric key. Otherwise an accepted minion could use the master to decrypt other ciphertexts.
func (s *Service) returnToken(r request, pub *rsa.PublicKey) ([]byte, Process, error) {
	plain, err := crypt.Decrypt(s.cfg.Secrets.cfg.Identity.Key, r.encAlgo, r.token)
	if err != nil {
		return nil, 0, err
	}
	if _, err := crypt.ParseKey(string(plain)); err != nil || len(plain) != crypt.KeyLen {
		return nil, 0, errToken
	}
	token, err := crypt.Encrypt(pub, r.encAlgo, plain)
	return token, processOf(plain), err
}
