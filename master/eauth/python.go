package eauth

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

//go:embed login.py
var loginScript string

// Python makes a backend for all systems that Salt's library knows, by one
// short-lived Python process per login. pythons are tried in order; none
// means the usual places. The password goes through a pipe.
func Python(pythons []string, configFile string) func(ctx context.Context, system, user, password string) (Verdict, error) {
	if len(pythons) == 0 {
		pythons = []string{"/opt/saltstack/salt/bin/python3", "python3"}
	}
	return func(ctx context.Context, system, user, password string) (Verdict, error) {
		in, err := json.Marshal(map[string]string{"conf": configFile, "eauth": system, "username": user, "password": password})
		if err != nil {
			return Verdict{}, fmt.Errorf("asking external_auth %q: %w", system, err)
		}
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		for _, py := range pythons {
			var path string
			if path, err = exec.LookPath(py); err != nil {
				continue
			}
			var v Verdict
			if v, err = runLogin(ctx, path, system, in); !errors.Is(err, errNoSalt) {
				return v, err
			}
		}
		return Verdict{}, fmt.Errorf("external_auth %q needs a Python with Salt's library, and none was found: install it or set saltern_renderer_python: %w", system, err)
	}
}

// errNoSalt means that a Python does not have Salt's library.
var errNoSalt = errors.New("no module named salt")

func runLogin(ctx context.Context, python, system string, in []byte) (Verdict, error) {
	cmd := exec.CommandContext(ctx, python, "-c", loginScript)
	cmd.Stdin = bytes.NewReader(in)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		text := stderr.Bytes()
		if bytes.Contains(text, []byte("No module named 'salt'")) {
			return Verdict{}, fmt.Errorf("%s: %w", python, errNoSalt)
		}
		return Verdict{}, fmt.Errorf("asking external_auth %q: %w: %.300s", system, err, text[max(0, len(text)-300):])
	}
	var v struct {
		OK     bool     `json:"ok"`
		Groups []string `json:"groups"`
	}
	if err := json.Unmarshal(out, &v); err != nil {
		return Verdict{}, fmt.Errorf("asking external_auth %q: reading the answer: %w", system, err)
	}
	return Verdict{OK: v.OK, Groups: v.Groups}, nil
}
