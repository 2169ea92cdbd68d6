package minion

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"saltern/master/crypt"
	"saltern/master/msgpack"
	"saltern/master/value"
)

// Challenge is what the answer to a sign-in must repeat.
type Challenge struct {
	nonce string
	token []byte // nil: none was sent
}

// SignIn does the handshake (salt/crypt.py sign_in) and keeps both keys.
func (m *Minion) SignIn(ctx context.Context) error {
	payload, c, err := m.PackSignIn()
	if err != nil {
		return fmt.Errorf("sign-in: %w", err)
	}
	answer, err := m.Send(ctx, payload)
	if err != nil {
		return fmt.Errorf("sign-in: %w", err)
	}
	return m.SignedIn(answer, c)
}

// PackSignIn makes the request that SignIn sends, to be sent by Send. The
// answer is for SignedIn.
func (m *Minion) PackSignIn() (payload []byte, c Challenge, err error) {
	pem, err := crypt.PublicPEM(&m.Key.PublicKey)
	if err != nil {
		return nil, c, err
	}

	c.nonce = Nonce()
	load := value.NewMap("cmd", "_auth", "id", m.ID, "nonce", c.nonce, "enc_algo", crypt.OAEPSHA1,
		"sig_algo", crypt.PKCS1SHA1, "pub", pem)
	if !m.Tokenless && m.Master != nil {
		if m.token == nil {
			token, err := crypt.NewKey(nil) // it has the form of a key
			if err != nil {
				return nil, c, err
			}
			m.token = []byte(token.String())
		}

		c.token = m.token
		sealed, err := crypt.Encrypt(m.Master, crypt.OAEPSHA1, c.token)
		if err != nil {
			return nil, c, err
		}

		load.Set("token", sealed)
	}

	payload, err = msgpack.Marshal(value.NewMap("enc", "clear", "load", load, "version", 3), msgpack.Raw)
	return payload, c, err
}

// SignedIn checks the answer to a sign-in and keeps both keys.
func (m *Minion) SignedIn(answer any, c Challenge) error {
	outer, _ := answer.(*value.Map)
	if outer == nil {
		return fmt.Errorf("sign-in: answered %.80v", answer)
	}

	if clear := outer.Map("load"); clear != nil {
		return fmt.Errorf("sign-in of %s: %w: ret is %v", m.ID, ErrRefused, clear.Value("ret"))
	}

	packed, _ := outer.Bytes("load")
	v, err := msgpack.Decode(packed, msgpack.DefaultLimits)
	if err != nil {
		return fmt.Errorf("sign-in: %w", err)
	}

	inner, _ := v.(*value.Map)
	if m.Master == nil {
		pem, _ := inner.Bytes("pub_key")
		if m.Master, err = crypt.ParsePublic(pem); err != nil {
			return fmt.Errorf("sign-in: the master's key: %w", err)
		}
	}

	m.bare = c.token == nil
	sig, _ := outer.Bytes("sig")
	if err := crypt.Verify(m.Master, crypt.PKCS1SHA1, packed, sig); err != nil {
		return fmt.Errorf("sign-in: %w", err)
	}

	switch {
	case inner.Str("nonce") != c.nonce:
		return fmt.Errorf("sign-in: answer to another question: %.80v", v)
	case inner.Str("enc") != "pub":
		return fmt.Errorf("sign-in of %s: %w", m.ID, ErrWaiting)
	}

	err = m.recognize(inner, c)
	if err == nil {
		m.Publics, err = m.unwrap(inner, "aes")
	}
	if err == nil {
		err = m.vouched(inner)
	}
	if err == nil {
		m.Session, err = m.unwrap(inner, "session")
	}

	if err != nil {
		return fmt.Errorf("sign-in of %s: %w", m.ID, err)
	}

	return nil
}

// recognize demands that the master decrypted the token.
func (m *Minion) recognize(answer *value.Map, c Challenge) error {
	if c.token == nil {
		return nil
	}
	sealed, _ := answer.Bytes("token")
	token, err := crypt.Decrypt(m.Key, crypt.OAEPSHA1, sealed)
	if err != nil || !bytes.Equal(token, c.token) {
		return errors.New("the answer holds another token")
	}
	return nil
}

// unwrap opens the key under field of an answer.
func (m *Minion) unwrap(answer *value.Map, field string) (crypt.Key, error) {
	wrapped, _ := answer.Bytes(field)
	text, err := crypt.Decrypt(m.Key, crypt.OAEPSHA1, wrapped)
	if err != nil {
		return crypt.Key{}, fmt.Errorf("open the field %s: %w", field, err)
	}
	return crypt.ParseKey(string(text))
}

// vouched demands the master's signature of the key for publishes
// (salt/crypt.py extract_aes).
func (m *Minion) vouched(answer *value.Map) error {
	sig, _ := answer.Bytes("sig")
	signed, err := crypt.X931Recover(m.Master, sig)
	if err != nil {
		return err
	}
	if digest := sha256.Sum256([]byte(m.Publics.String())); string(signed) != hex.EncodeToString(digest[:]) {
		return errors.New("the signature is of another key for publishes")
	}
	return nil
}
