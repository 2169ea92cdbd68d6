package master

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"saltern/master/conf"
	"saltern/master/fileserver"
	"saltern/master/msgpack"
	"saltern/master/pyrunner"
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

// callWheel calls a wheel function of this master or, when it has none of that
// name, one that only Python has: an administrator's own.
func (m *Master) callWheel(ctx context.Context, fun string, args []any, named *msgpack.Map) (any, error) {
	ret, err := wheel.Call(ctx, m.wheelEnv(), fun, args, named)
	if !errors.Is(err, wheel.ErrUnknown) {
		return ret, err
	}
	leave, ok := m.background.Wait()
	if !ok {
		return nil, errors.New("the master is busy with the requests of others; try again later")
	}
	defer leave()
	ret, perr := m.runners.wheel.Call(ctx, fun, args, named)
	var none *pyrunner.UnknownError
	switch {
	case errors.As(perr, &none):
		return nil, err
	case errors.Is(perr, pyrunner.ErrNoSalt):
		return nil, fmt.Errorf("%w in this master itself, and %w; set saltern_renderer_python", err, perr)
	}
	return ret, perr
}
