package userdata

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
	"time"

	"saltern/internal/command"
)

// guest is one of the tools with which a virtual machine reads properties from VMware's hypervisor.
type guest struct {
	path string
	// whole reports whether the tool takes its command as one argument, as vmtoolsd does after
	// --cmd.
	whole bool
}

// guestInfo asks VMware's hypervisor with the first of its tools that is installed, as cloud-init's
// DataSourceVMware does: first for user-data, then for the properties of the OVF environment.
func (p Places) guestInfo(ctx context.Context, s *search) {
	for _, tool := range p.GuestInfo {
		path, err := exec.LookPath(tool)
		if err != nil {
			continue
		}
		g := guest{path: path, whole: strings.HasSuffix(tool, "vmtoolsd")}
		g.searchKeys(ctx, s)
		return
	}
}

func (g guest) searchKeys(ctx context.Context, s *search) {
	text, err := g.readKey(ctx, "userdata")
	if err != nil {
		s.unreachable("guestinfo.userdata", err)
	}

	if text != "" {
		encoding, _ := g.readKey(ctx, "userdata.encoding")
		s.encoded("guestinfo.userdata", text, encoding)
	}

	if s.decided() {
		return
	}

	env, err := g.readKey(ctx, "ovfEnv")
	if err != nil {
		s.unreachable("guestinfo.ovfEnv", err)
	}

	if env != "" {
		s.environment("guestinfo.ovfEnv", []byte(env))
	}

	if vendor, _ := g.readKey(ctx, "vendordata"); vendor != "" {
		s.noteUnused("guestinfo.vendordata is not read")
	}
}

// encoded looks for answers in a text with an encoding that DataSourceVMware knows
// (guestinfo_decode): base64, b64, gzip+base64 or gz+b64, ignoring case. It recognises gzip by the
// first bytes.
func (s *search) encoded(name, text, encoding string) {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "":
		s.document(name, []byte(text), shared)
	case "base64", "b64", "gzip+base64", "gz+b64":
		plain, ok := fromBase64(text)
		if !ok {
			s.unreachable(name, errors.New("it is not base64, as its encoding says"))
			return
		}
		s.document(name, plain, shared)
	default:
		s.noteForeign(name, ": its encoding "+encoding+" is not known")
	}
}

// readKey reads one key of guestinfo. It returns "" if the key is not set, or if this is no VMware
// machine. cloud-init replaces a value that it has read by "---"; for such a value readKey returns
// "", too.
func (g guest) readKey(ctx context.Context, key string) (string, error) {
	argv := []string{g.path, "info-get guestinfo." + key}
	if g.whole {
		argv = []string{g.path, "--cmd", "info-get guestinfo." + key}
	}

	out, err := command.Do(ctx, command.Exec{Limit: 5 * time.Second, MaxOutput: 2 * MaxGiven}, argv...)
	switch {
	case errors.Is(err, command.ErrOutput), ctx.Err() != nil:
		return "", err
	case err != nil: // not a VMware machine, or the key is not set
		return "", nil
	}

	text := string(bytes.TrimRight(out, "\r\n"))
	if strings.TrimSpace(text) == "---" {
		return "", nil
	}

	return text, nil
}
