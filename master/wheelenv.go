package master

import (
	"path/filepath"
	"strings"

	"saltern/master/conf"
	"saltern/master/fileserver"
	"saltern/master/msgpack"
	"saltern/master/wheel"
)

func (m *Master) wheelEnv() *wheel.Env {
	return &wheel.Env{
		Keys: m.ring, FileRoots: fileserver.Tree{Roots: m.cfg.FileRoots}, PillarRoots: fileserver.Tree{Roots: m.cfg.PillarRoots}, Connected: m.connected,
		ConfigDir: filepath.Dir(m.cfg.Path), DefaultInclude: m.cfg.Raw.Str("default_include"),
		Values: func() *msgpack.Map { return conf.WithoutSecrets(m.cfg.Raw) }, KeySize: m.cfg.KeySize,
		PublicKey: func() (string, string) { return strings.TrimSuffix(m.cfg.ID, "_master") + ".pub", m.identity.Public },
	}
}
