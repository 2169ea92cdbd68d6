package master

import (
	"cmp"
	"os"
	"path/filepath"

	"saltern/master/internal/pillar/gpg"
)

// openGPG creates what decrypts the secrets of pillars. It starts no program. It returns nil if Salt's
// renderer gpg has to do it: another module has its name, or gpg_keydir is not the path of a folder.
func (m *Master) openGPG() *gpg.Decrypter {
	c := m.cfg
	folder := cmp.Or(c.Raw.Str("config_dir"), filepath.Dir(cmp.Or(c.Path, "/etc/salt/master")))
	keydir := cmp.Or(c.GPGKeydir, filepath.Join(folder, "gpgkeys"))
	if !filepath.IsAbs(keydir) || m.hasOwnGPG() {
		return nil
	}

	cfg := gpg.Config{
		Keydir:      keydir,
		MustSucceed: c.GPGMustSucceed,
		AtOnce:      m.renderers.Workers(),
		Log:         m.log,
	}
	if c.GPGCache {
		cfg.TTL = max(0, c.GPGCacheTTL)
	}
	return gpg.New(cfg)
}

// hasOwnGPG reports whether the administrator has a renderer gpg of his own, or folders in which Salt
// looks for one.
func (m *Master) hasOwnGPG() bool {
	if c := m.cfg; len(c.ModuleDirs) > 0 || len(c.Raw.List("render_dirs")) > 0 {
		return true
	}
	for _, suffix := range []string{".py", ".pyc", ".so"} {
		if _, err := os.Stat(filepath.Join(m.cfg.ExtensionModules, "renderers", "gpg"+suffix)); err == nil {
			return true
		}
	}
	return false
}
