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
	accepted bool   // the payload holds the keys
	process  Process
}

// Process identifies a process of a minion: a digest of its token, or 0 without one. A minion draws
// its token when it starts and shows the same one at each sign-in (salt/crypt.py
// AsyncAuth.__singleton_init__). A sign-in without the master's key shows none. A minion draws another
// one for another master of its list, and once more in the life in which it made its keys, since they
// are part of the key under which the token is remembered (_auth_singleton_key); salt-call draws its own.
type Process uint64

// processOf returns the digest of a token in the clear.
func processOf(token []byte) Process {
	sum := sha256.Sum256(append([]byte("process "), token...))
	return Process(binary.BigEndian.Uint64(sum[:]))
}

// answer makes the payload for a verdict. Its RSA work passes the gates: minions without an accepted
// key, and those that sign in too often, get at most half of the workers.
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

// fromOwnAddress reports whether an id last proved itself from this address. Without Config.Presence
// it returns true.
func (s *Service) fromOwnAddress(id string, from netip.AddrPort) bool {
	if s.cfg.Presence == nil {
		return true
	}
	a, _, ok := s.cfg.Presence.LastRequest(id)
	return ok && a.Unmap() == from.Addr().Unmap()
}

// verdictReply returns the answer to a minion that is not accepted, or not yet.
func (s *Service) verdictReply(r request, ret any) any {
	if r.version < 2 {
		return unsigned(ret)
	}
	return s.signedMap(value.NewMap("ret", ret, "nonce", r.nonce), r.sigAlgo)
}

// signedMap wraps a map together with the signature over exactly the bytes that are sent.
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

// acceptedMap returns the answer with the keys for a minion (master.py _auth_impl).
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
			// As in Salt the answer then lacks a token. A minion that knows the master refuses such
			// an answer.
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

// returnToken opens a token with the master's key and encrypts it for the minion, which proves to the
// minion that the master has that key. It returns only texts of symmetric keys, the form of a token:
// otherwise an accepted minion could let the master decrypt other ciphertexts.
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
