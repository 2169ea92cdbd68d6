package main

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"saltern/internal/durable"
	"saltern/master/crypt"
	"saltern/master/keys"
	"saltern/master/value"
)

func (k *keyCall) displayReturn(v any) error { return k.displayKeys(value.NewMap("return", v)) }

// genKeys creates a key pair, or reads an existing one, and prints the fingerprint of the public
// key.
func (k *keyCall) genKeys(name string) error {
	if strings.ContainsAny(name, "/\x00") || name == "." || name == ".." {
		return fmt.Errorf("%q is not the name of a key", name)
	}

	dir := k.values.Str("gen_keys_dir")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}

	pub, err := keyPair(filepath.Join(dir, name), k.values.Int("keysize"), "", false)
	if err != nil {
		return err
	}

	f, err := keys.Fingerprint(string(pub), k.cfg.HashType)
	if err != nil {
		return err
	}

	return k.displayReturn(f)
}

// keyPair returns the content of base.pub. If base.pem is missing, or force is set, it first
// creates both files.
func keyPair(base string, bits int, pass string, force bool) ([]byte, error) {
	_, err := os.Stat(base + ".pem")
	if err == nil && !force {
		return os.ReadFile(base + ".pub")
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}

	key, err := crypt.GeneratePrivate(bits)
	if err != nil {
		return nil, err
	}

	if err := crypt.SavePrivate(base+".pem", key, pass); err != nil {
		return nil, err
	}

	if err := crypt.SavePublic(base+".pub", &key.PublicKey); err != nil {
		return nil, err
	}

	return os.ReadFile(base + ".pub")
}

// genSignature signs the master's public key (salt/key.py gen_keys_signature). If files are
// missing, it prints that as a result and returns no error, as Salt does.
func (k *keyCall) genSignature() error {
	pub, priv := k.values.Str("pub"), k.values.Str("priv")
	if pub != "" && !isFile(pub) {
		return k.displayReturn("Public-key " + pub + " does not exist")
	}

	if pub == "" {
		if p := filepath.Join(k.dir, "master.pub"); isFile(p) {
			pub = p
		}
	}

	if priv != "" && !isFile(priv) {
		return k.displayReturn("Private-key " + priv + " does not exist")
	}

	if priv == "" {
		if p := filepath.Join(k.dir, "master_sign.pem"); isFile(p) {
			priv = p
		}
	}
	if priv == "" {
		if !k.values.Bool("auto_create") {
			return k.displayReturn("No usable private-key found")
		}

		base := filepath.Join(k.dir, k.cfg.MasterSignKeyName)
		if _, err := keyPair(base, k.values.Int("keysize"), k.cfg.SigningKeyPass, true); err != nil {
			return err
		}

		priv = base + ".pem"
	}

	if pub == "" {
		return k.displayReturn("No usable public-key found")
	}

	dir := k.values.Str("signature_path")
	dir = cmp.Or(dir, k.dir)
	name := k.cfg.MasterPubkeySig
	name = cmp.Or(name, "master_pubkey_signature")
	path := filepath.Join(dir, strings.TrimSuffix(k.cfg.ID, "_master")+"_"+name)
	if _, err := os.Lstat(path); err == nil {
		k.log.Error(path + " already exists at expected location")
		return k.displayReturn(false)
	}

	key, err := crypt.LoadPrivate(priv, k.cfg.SigningKeyPass)
	if err != nil {
		return err
	}

	text, err := os.ReadFile(pub)
	if err != nil {
		return err
	}

	sig, err := crypt.Sign(key, k.cfg.PublishSigningAlgorithm, []byte(crypt.NormalizePEM(string(text))))
	if err != nil {
		return err
	}

	out := base64.StdEncoding.EncodeToString(sig) + "\n"
	if err := durable.Replace(path, []byte(out), 0o400); err != nil {
		return err
	}

	return k.displayReturn(true)
}

func isFile(p string) bool { st, err := os.Stat(p); return err == nil && st.Mode().IsRegular() }
