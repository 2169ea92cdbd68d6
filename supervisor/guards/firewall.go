package guards

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"saltern/internal/durable"
	"saltern/supervisor/firewall"
	"saltern/supervisor/status"
)

// Files that the loader of the rules leaves in [Dir] (image/profile, usr/libexec/saltern/rules).
const (
	// rulesFile holds the digest of the loaded rules. [NoteRules] writes it.
	rulesFile = "rules"
	// refusedFile holds nft's error message about /etc/nftables.conf. While the file exists,
	// earlier rules or the image's own rules are loaded instead.
	refusedFile = "rules.refused"
)

// NoteRules saves the digest of the loaded rules in dir. It must be called right after the rules
// were loaded.
func NoteRules(ctx context.Context, dir string) error {
	now, err := firewall.Rules(ctx)
	if err != nil {
		return err
	}
	return durable.Swap(filepath.Join(dir, rulesFile), []byte(now), 0o644)
}

// A Firewall maintains the firewall of a machine made from the image.
type Firewall struct {
	Dir   string // folder of the reports
	Own   string // folder of the administrator's rules
	Peers []netip.Addr
	Port  uint16 // port of Salt's API; 0: the API is not served
}

// Keep fills the sets and the chain of the administrator's rules, checks the firewall, and writes
// the report. systemd logs the returned error to the journal.
func (w Firewall) Keep(ctx context.Context) error {
	before, _ := readReport(w.Dir, FirewallFile) // if the report is broken, the administrator's rules are loaded again
	r := Report{Loaded: before.Loaded}

	err := w.fillSets(ctx, &r)
	wrong := err
	if wrong == nil {
		wrong = w.compare(ctx)
	}

	// This finding comes first, because a report is cut after some findings and the administrator may have many
	// files.
	var first []status.Finding
	if wrong != nil {
		first = append(first, status.Finding{Code: status.FirewallWrong, Cause: wrong.Error()})
	}

	if text, err := durable.Read(filepath.Join(w.Dir, refusedFile), maxReport); err == nil && len(text) > 0 {
		first = append(first, status.Finding{Code: status.FirewallWrong,
			Cause: "/etc/nftables.conf is refused, and the earlier rules, or the image's own, " +
				"hold in its place: " + string(text)})
	}

	r.Findings = append(first, r.Findings...)
	return errors.Join(err, Write(w.Dir, FirewallFile, r))
}

// fillSets fills the sets and the administrator's chain. Faults of the administrator's rules go
// into the report r; any other failure is the error.
func (w Firewall) fillSets(ctx context.Context, r *Report) error {
	if _, err := firewall.Rules(ctx); err != nil {
		r.Loaded = ""
		return err
	}

	// The sets come first: other nodes need them, and name servers may delay what follows.
	if err := firewall.Apply(ctx, w.Peers); err != nil {
		return err
	}

	if err := firewall.Open(ctx, w.Port); err != nil {
		return err
	}

	var err error
	var faults []firewall.Fault
	r.Loaded, faults, err = firewall.LoadOwn(ctx, w.Own, r.Loaded)
	for _, f := range faults {
		r.Findings = append(r.Findings, status.Finding{Code: status.FirewallOwn, Subject: f.File, Cause: f.Cause})
	}

	return err
}

// compare returns an error that names what has changed since the rules were loaded, or nil. It
// compares the rules, and the sets with the table of nodes.
func (w Firewall) compare(ctx context.Context) error {
	if holds, err := firewall.Holds(ctx, w.Peers); err != nil || !holds {
		return errors.Join(errors.New("the sets of the cluster's nodes do not hold the addresses of its table"), err)
	}

	rules, err := firewall.Rules(ctx)
	if err != nil {
		return err
	}

	noted, err := os.ReadFile(filepath.Join(w.Dir, rulesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // an administrator loaded the rules by hand
	}
	if err != nil {
		return fmt.Errorf("read what the rules were: %w", err)
	}
	if string(noted) != rules {
		return errors.New("somebody has changed the rules of the table inet " + firewall.Table +
			" since they were loaded")
	}

	return nil
}
