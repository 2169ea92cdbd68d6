package wheel

import (
	"context"
	"errors"
	"fmt"

	"saltern/master/crypt"
	"saltern/master/internal/keyadmin"
	"saltern/master/keys"
	"saltern/master/value"
)

func keyFunctions() map[string]function {
	match := []string{"match"}
	pick := func(a args) keyadmin.Selection { return keyadmin.Selection{Match: a["match"]} }
	dict := func(a args) (keyadmin.Selection, error) {
		m, ok := a["match"].(*value.Map)
		if !ok {
			return keyadmin.Selection{}, errors.New("match must be a map of folder names to lists of ids")
		}
		return keyadmin.Selection{Dict: m}, nil
	}

	list := function{match, 1,
		func(_ context.Context, e *Env, a args) (any, error) { return e.Keys.Status(a.textOf("match", "")) }}
	glob := function{match, 1,
		func(_ context.Context, e *Env, a args) (any, error) { return e.Keys.Match(a["match"], false) }}
	text := function{match, 1, func(_ context.Context, e *Env, a args) (any, error) { return e.Keys.Text(a["match"]) }}
	accept := []string{"match", "include_rejected", "include_denied"}
	reject := []string{"match", "include_accepted", "include_denied"}

	return map[string]function{
		"key.list":       list,
		"key.list_all":   {nil, 0, func(_ context.Context, e *Env, _ args) (any, error) { return e.Keys.All() }},
		"key.name_match": glob,
		"key.glob_match": glob,
		"key.print":      text,
		"key.key_str":    text,
		"key.accept": {accept, 1, func(_ context.Context, e *Env, a args) (any, error) {
			return e.Keys.Accept(pick(a), a.flagOf("include_rejected"), a.flagOf("include_denied"))
		}},
		"key.accept_dict": {accept, 1, func(_ context.Context, e *Env, a args) (any, error) {
			s, err := dict(a)
			if err != nil {
				return nil, err
			}
			return e.Keys.Accept(s, a.flagOf("include_rejected"), a.flagOf("include_denied"))
		}},
		"key.reject": {reject, 1, func(_ context.Context, e *Env, a args) (any, error) {
			return e.Keys.Reject(pick(a), a.flagOf("include_accepted"), a.flagOf("include_denied"))
		}},
		"key.reject_dict": {reject, 1, func(_ context.Context, e *Env, a args) (any, error) {
			s, err := dict(a)
			if err != nil {
				return nil, err
			}
			return e.Keys.Reject(s, a.flagOf("include_accepted"), a.flagOf("include_denied"))
		}},
		"key.delete": {match, 1,
			func(_ context.Context, e *Env, a args) (any, error) { return e.Keys.Delete(pick(a), false) }},
		"key.delete_dict": {match, 1, func(_ context.Context, e *Env, a args) (any, error) {
			s, err := dict(a)
			if err != nil {
				return nil, err
			}
			return e.Keys.Delete(s, false)
		}},
		"key.finger": {[]string{"match", "hash_type"}, 1, func(_ context.Context, e *Env, a args) (any, error) {
			return e.Keys.Finger(a["match"], a.textOf("hash_type", ""))
		}},
		"key.finger_master": {[]string{"hash_type"}, 0, func(_ context.Context, e *Env, a args) (any, error) {
			_, pem := e.PublicKey()
			h := a.textOf("hash_type", e.Keys.HashType)
			f, err := keys.Fingerprint(pem, h)
			// Callers expect the name master.pub, even if the file has another name.
			return value.NewMap("local", value.NewMap("master.pub", f)), err
		}},
		"key.master_key_str": {nil, 0, func(_ context.Context, e *Env, _ args) (any, error) {
			name, pem := e.PublicKey()
			return value.NewMap("local", value.NewMap(name, pem)), nil
		}},
		"key.gen": {[]string{"id_", "keysize"}, 0, func(_ context.Context, e *Env, a args) (any, error) {
			pair, err := generate(e, a)
			return pair, err
		}},
		"key.gen_accept": {[]string{"id_", "keysize", "force"}, 1, genAccept},
	}
}

// maxKeySize bounds the size of a generated key in bits, so that a call cannot occupy a CPU core
// for minutes.
const maxKeySize = 8192

func generate(e *Env, a args) (*value.Map, error) {
	size := max(a.numberOf("keysize", 2048), 2048, e.KeySize)
	if size > maxKeySize {
		return nil, fmt.Errorf("a key of %d bits is not made here; the most is %d", size, maxKeySize)
	}

	k, err := crypt.GeneratePrivate(size)
	if err != nil {
		return nil, fmt.Errorf("generate a key: %w", err)
	}

	priv, err := crypt.PrivatePEM(k, "")
	if err != nil {
		return nil, fmt.Errorf("generate a key: %w", err)
	}

	pub, err := crypt.PublicPEM(&k.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("generate a key: %w", err)
	}

	return value.NewMap("priv", string(priv), "pub", pub), nil
}

func genAccept(_ context.Context, e *Env, a args) (any, error) {
	id := a.textOf("id_", "")
	if err := keys.ValidID(id); err != nil {
		return nil, err
	}

	if _, ok := e.Keys.Store.Lookup(id); ok && !a.flagOf("force") {
		return value.NewMap(), nil
	}

	pair, err := generate(e, a)
	if err != nil {
		return nil, err
	}

	if err := e.Keys.Store.Put(id, keys.Accepted, pair.Str("pub")); err != nil {
		return nil, err
	}

	return pair, nil
}
