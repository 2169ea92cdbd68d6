package eauth

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"saltern/command"
	"saltern/master/pyrunner"
)

// maxVerdict bounds the answer of a login, mostly the names of groups.
const maxVerdict = 1 << 20

//go:embed login.py
var loginScript string

// Python makes a backend for all systems that Salt's library knows, by one
// short-lived Python process per login. pythons are tried in order; none
// means the usual places. layer, if any, is a folder of packages (pyrunner.Layer). Names and password go through a pipe; Python runs
// isolated (-I), in the root directory.
func Python(pythons []string, configFile, layer string) func(ctx context.Context, system, user, password string) (Verdict, error) {
	if len(pythons) == 0 {
		pythons = []string{"/opt/saltstack/salt/bin/python3", "python3"}
	}
	return func(ctx context.Context, system, user, password string) (Verdict, error) {
		in, err := json.Marshal(map[string]string{"conf": configFile, "eauth": system, "username": user, "password": password})
		if err != nil {
			return Verdict{}, fmt.Errorf("ask external_auth %q: %w", system, err)
		}
		ctx, cancel := context.WithTimeout(ctx, time.Minute) // for all of them
		defer cancel()
		for _, py := range pythons {
			var path string
			if path, err = exec.LookPath(py); err == nil {
				path, err = filepath.Abs(path)
			}
			if err != nil {
				continue
			}
			var v Verdict
			if v, err = runLogin(ctx, path, pyrunner.Layer(layer), system, in); !errors.Is(err, errNoSalt) {
				return v, err
			}
		}
		return Verdict{}, fmt.Errorf("external_auth %q needs a Python with Salt's library, and none was found: install it or set saltern_renderer_python: %w", system, err)
	}
}

// errNoSalt means that a Python does not have Salt's library.
var errNoSalt = errors.New("no module named salt")

func runLogin(ctx context.Context, python, layer, system string, in []byte) (Verdict, error) {
	run := command.Exec{MaxOutput: maxVerdict, Env: os.Environ(), Stdin: string(in)}
	out, err := run.Run(ctx, append([]string{python}, pyrunner.Arguments(loginScript, layer)...))
	if err == nil && out.Exit != 0 {
		if bytes.Contains(out.Stderr, []byte("No module named 'salt'")) {
			return Verdict{}, fmt.Errorf("%s: %w", python, errNoSalt)
		}
		err = fmt.Errorf("exit status %d", out.Exit)
	}
	if err != nil {
		return Verdict{}, fmt.Errorf("ask external_auth %q: %w: %.300s", system, err, out.Stderr[max(0, len(out.Stderr)-300):])
	}
	var v struct {
		OK     bool     `json:"ok"`
		Groups []string `json:"groups"`
	}
	if err := json.Unmarshal(out.Stdout, &v); err != nil {
		return Verdict{}, fmt.Errorf("ask external_auth %q: read the answer: %w", system, err)
	}
	return Verdict{OK: v.OK, Groups: v.Groups}, nil
}
