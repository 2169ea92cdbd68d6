package master

import (
	"path/filepath"

	"saltern/master/fileserver"
	"saltern/master/msgpack"
	"saltern/master/wheel"
)

func (m *Master) wheelEnv() *wheel.Env {
	return &wheel.Env{
		Keys: m.ring, FileRoots: fileserver.Tree{Roots: m.cfg.FileRoots}, PillarRoots: fileserver.Tree{Roots: m.cfg.PillarRoots}, Connected: m.connected,
		ConfigDir: filepath.Dir(m.cfg.Path), DefaultInclude: m.cfg.Raw.Str("default_include"),
		Values: func() *msgpack.Map { return withoutSecrets(m.cfg.Raw) }, KeySize: m.cfg.KeySize,
		PublicKey: func() (string, string) { return "master.pub", m.identity.Public },
	}
}

// secretOptions never leave the master, not even to an authorised caller.
var secretOptions = []string{"key_pass", "signing_key_pass", "cluster_secret", "cluster_key_pass", "sharedsecret"}

func withoutSecrets(raw *msgpack.Map) *msgpack.Map {
	out := raw.Clone()
	for _, k := range secretOptions {
		if v, ok := out.Get(k); ok && v != nil && v != "" {
			out.Set(k, "(hidden)")
		}
	}
	return out
}
