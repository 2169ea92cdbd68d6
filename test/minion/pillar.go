package minion

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"saltern/master/crypt"
	"saltern/master/msgpack"
	"saltern/master/value"
)

// Pillar asks for the pillar and opens the private reply
// (salt/channel/server.py _encrypt_private).
func (m *Minion) Pillar(ctx context.Context) (*value.Map, error) {
	grains := m.Grains
	if grains == nil {
		grains = value.NewMap("id", m.ID)
	}

	answer, nonce, err := m.ask(ctx, "_pillar", "grains", grains, "saltenv", nil, "pillarenv", nil,
		"pillar_override", value.NewMap(), "extra_minion_data", value.NewMap(), "ver", "2")
	if err != nil {
		return nil, err
	}

	outer, _ := answer.(*value.Map)
	if outer == nil {
		return nil, fmt.Errorf("_pillar: %w: %.80v", ErrRefused, answer)
	}

	wrapped, _ := outer.Bytes("key")
	key, err := m.unwrap(outer, "key")
	if err != nil {
		return nil, err
	}

	blob, _ := outer.Bytes("pillar")
	signed, err := key.Open(blob)
	if err != nil {
		return nil, fmt.Errorf("_pillar: %w", err)
	}

	v, err := msgpack.Decode(signed, msgpack.DefaultLimits)
	if err != nil {
		return nil, fmt.Errorf("_pillar: %w", err)
	}

	s, _ := v.(*value.Map)
	data, _ := s.Bytes("data")
	sig, _ := s.Bytes("sig")
	if err := crypt.Verify(m.Master, crypt.PKCS1SHA1, data, sig); err != nil {
		return nil, fmt.Errorf("_pillar: %w", err)
	}

	if v, err = msgpack.Decode(data, msgpack.DefaultLimits); err != nil {
		return nil, fmt.Errorf("_pillar: %w", err)
	}

	d, _ := v.(*value.Map)
	if inner, _ := d.Bytes("key"); !bytes.Equal(inner, wrapped) || d.Str("nonce") != nonce || d.Map("pillar") == nil {
		return nil, errors.New("_pillar: the answer is to another question")
	}

	return d.Map("pillar"), nil
}
