package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"saltern/internal/printable"
	"saltern/master/client"
	"saltern/master/value"
)

// credentials returns the fields that an external authentication system needs, and asks the user
// for the fields that the command line lacks. With -T it also fetches a new token and saves the
// token. Without -a it returns no fields (salt/auth/__init__.py Resolver).
func (t *tool) credentials(ctx context.Context, c *client.Client) (*value.Map, error) {
	eauth := t.values.Str("eauth")
	m := value.NewMap()
	if eauth == "" {
		return m, nil
	}

	if err := t.knownSystem(eauth); err != nil {
		return nil, err
	}

	name := t.values.Str("username")
	if name == "" {
		var err error
		if name, err = t.askUser("username: "); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if name == "" {
			name = client.EffectiveUser()
		}
	}

	password := t.values.Str("password")
	if t.values.Get("password") == nil {
		var err error
		if password, err = t.askHidden("password: "); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
	}

	m.Set("username", name)
	m.Set("password", password)
	if t.values.Bool("mktoken") {
		load := m.Clone()
		load.Set("cmd", "mk_token")
		load.Set("eauth", eauth)
		v, err := c.Ask(ctx, load)
		if err != nil {
			return nil, err
		}

		if tok, ok := v.(*value.Map); ok && tok.Str("token") != "" {
			t.saveToken(tok.Str("token"))
			m.Set("token", tok.Str("token"))
		}
	}

	m.Set("eauth", eauth)
	return m, nil
}

// saltSystems returns the authentication systems of Salt 3008.3 (salt/auth).
func saltSystems() []string { return []string{"auto", "file", "ldap", "pam", "rest", "sharedsecret"} }

// knownSystem returns an error if the external authentication system name does not exist. The tool
// calls it before it asks for a password (salt/auth/__init__.py Resolver.cli). A system exists if
// it is built into Salt, is a module of the administrator, or is named in external_auth, such as a
// module of a Salt extension. The configuration for users other than root contains neither modules
// nor external_auth. For these users knownSystem returns nil, and the master decides.
func (t *tool) knownSystem(name string) error {
	if t.partial {
		return nil
	}

	known := append(saltSystems(), t.modules("auth", t.cfg.AuthDirs...)...)
	for k := range t.cfg.ExternalAuth.All() {
		known = append(known, value.Str(k))
	}

	slices.Sort(known)
	known = slices.Compact(known)
	if slices.Contains(known, name) {
		return nil
	}

	t.println("The specified external authentication system \"" + printable.Line(name) + "\" is not available")
	t.println("Available eauth types: " + printable.Line(strings.Join(known, ", ")))
	fmt.Fprintln(t.stderr, "ERROR: Authentication failed")
	return exit(exitNoReturn)
}

func (t *tool) saveToken(tok string) {
	path := t.tokenFile()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil {
		_, err = f.WriteString(tok)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.log.Warn("token not saved", "path", path, "error", err)
	}
}

// askHidden prints a question and returns the line that the user enters. On a terminal the line is
// not echoed.
func (t *tool) askHidden(question string) (string, error) {
	f, ok := t.stdin.(*os.File)
	if !ok {
		return t.askUser(question)
	}

	fd := int(f.Fd())
	old, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return t.askUser(question)
	}

	fmt.Fprint(t.stderr, question)
	mute := *old
	mute.Lflag &^= unix.ECHO
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &mute); err != nil {
		return "", fmt.Errorf("hide the password: %w", err)
	}
	defer func() {
		_ = unix.IoctlSetTermios(fd, unix.TCSETS, old)
		fmt.Fprintln(t.stderr)
	}()

	s, err := t.input.ReadString('\n')
	return strings.TrimRight(s, "\r\n"), err
}
