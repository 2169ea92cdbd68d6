package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"saltern/internal/command"
	"saltern/internal/pause"
	"saltern/supervisor/layout"
)

// Networker changes the machine's network through systemd-networkd. It tries a configuration and
// reverts it unless a person confirms the configuration, so that administrators do not lock
// themselves out. Its methods are safe for concurrent use.
type Networker struct {
	Dir     string // directory of networkd's files: /etc/systemd/network
	Reload  func(context.Context) error
	Lasts   time.Duration // length of a trial; 0: TrialLasts
	Managed func() bool
	Log     *slog.Logger
	// Reach reports which servers of a network answer. It may be nil: nothing is checked.
	Reach func(context.Context, Network) []Reach

	// changing is held during each change of the network, until the machine has applied the change.
	// Its holder may read trial without mu. Lock changing before mu.
	changing sync.Mutex

	mu     sync.Mutex
	trial  *trial         // changed by setTrial only
	trying sync.WaitGroup // waits for keepTrying
}

// trial is a configuration that is not confirmed yet.
type trial struct {
	iface string // "": all interfaces
	until time.Time
	timer *time.Timer
	stop  context.CancelFunc // ends keepTrying
	reach []Reach            // outcome of the last complete check; nil: none is complete
}

// cancelTimers stops the timers and checks of a trial.
func (t *trial) cancelTimers() {
	t.timer.Stop()
	t.stop()
}

// Names of files in Dir: the set-up's own file, and a copy of its content from before a trial.
const (
	networkFile = "10-saltern.network"
	beforeFile  = ".10-saltern.network.before"
)

// NewNetworker returns a Networker for this machine.
func NewNetworker(log *slog.Logger) *Networker {
	return &Networker{
		Dir:     "/etc/systemd/network",
		Managed: managed,
		Log:     log,
		Reach:   reachOf,
		Reload: func(ctx context.Context) error {
			if _, err := command.Do(ctx, command.Exec{Limit: time.Minute}, "networkctl", "reload"); err != nil {
				return fmt.Errorf("networkctl reload: %w", err)
			}
			return nil
		},
	}
}

// dhcpText equals the network before the set-up (image/profile, 80-saltern-default). The DHCP
// client identifies itself by the address of the card, and not by the identifier that systemd
// generates: clones share that identifier, and servers such as Windows reservations expect the
// address. The client sends the node's name as its host name.
const dhcpText = `
[DHCPv4]
ClientIdentifier=mac
UseHostname=no

[DHCPv6]
UseHostname=no
`

// networkText returns the configuration of systemd-networkd for a network.
func networkText(n Network) []byte {
	var b strings.Builder
	b.WriteString("# Written by the set-up.\n[Match]\n")
	if n.Interface != "" {
		fmt.Fprintf(&b, "Name=%s\n", n.Interface)
	} else {
		b.WriteString("Type=ether\n")
	}

	b.WriteString("\n[Network]\n")
	if n.Method == "static" {
		fmt.Fprintf(&b, "Address=%s\n", n.Address)
		if n.Gateway != "" {
			fmt.Fprintf(&b, "Gateway=%s\n", n.Gateway)
		}
	} else {
		b.WriteString("DHCP=yes\n")
	}

	for _, d := range n.DNS {
		fmt.Fprintf(&b, "DNS=%s\n", d)
	}

	if len(n.Search) > 0 {
		fmt.Fprintf(&b, "Domains=%s\n", strings.Join(n.Search, " "))
	}

	for _, s := range n.NTP {
		fmt.Fprintf(&b, "NTP=%s\n", s)
	}

	b.WriteString(dhcpText)
	return []byte(b.String())
}

// Try applies a network configuration on trial. The trial lasts until Confirm or Revert, or until
// Lasts has passed, when the Networker reverts it. n must be valid.
func (w *Networker) Try(ctx context.Context, n Network) (Trial, error) {
	w.changing.Lock()
	defer w.changing.Unlock()
	if !w.Managed() {
		return Trial{}, fmt.Errorf("%w: the network of this machine is managed elsewhere: change it there", ErrState)
	}
	if n.Method == "" {
		return Trial{}, fmt.Errorf("%w: network.method is missing: dhcp or static", ErrState)
	}

	if w.trial == nil { // keep the content from before the first try, which Revert restores
		if err := w.saveCurrent(); err != nil {
			return Trial{}, err
		}
	}

	if _, err := layout.WriteFile(filepath.Join(w.Dir, networkFile), networkText(n), 0o644); err != nil {
		return Trial{}, err
	}

	if err := w.Reload(ctx); err != nil {
		return Trial{}, errors.Join(err, w.restoreSaved(ctx))
	}

	lasts := w.Lasts
	lasts = cmp.Or(lasts, TrialLasts)
	if w.trial != nil {
		w.trial.cancelTimers()
	}

	looks, stop := context.WithTimeout(context.Background(), lasts)
	t := &trial{iface: n.Interface, until: time.Now().Add(lasts), stop: stop}
	t.timer = time.AfterFunc(lasts, func() { w.revertUnconfirmed(t) })
	w.setTrial(t)
	begun := w.Look()

	if w.Reach != nil {
		w.trying.Go(func() { w.keepTrying(looks, t, n) })
	}

	return begun, nil
}

const (
	// reachSettles is the time during which a server of a new network that does not answer is not
	// reported: the interface may still be coming up.
	reachSettles = 10 * time.Second
	// reachAgain is the pause between two checks of a network.
	reachAgain = 5 * time.Second
)

// keepTrying checks every few seconds which servers of a network answer, until ctx ends: an address
// or a cable may come late. For the first reachSettles it does not report missing answers: the
// interface may not be up yet, and the message "NO ANSWER" would lead the administrator to revert a
// good network.
func (w *Networker) keepTrying(ctx context.Context, t *trial, n Network) {
	settled := time.Now().Add(reachSettles)
	for {
		reach := w.Reach(ctx, n)
		if ctx.Err() != nil {
			return
		}

		again := reachAgain
		if slices.ContainsFunc(reach, silent) && time.Now().Before(settled) {
			again = time.Second
		} else {
			w.mu.Lock()
			t.reach = reach
			w.mu.Unlock()
		}

		if pause.For(ctx, again) != nil {
			return
		}
	}
}

// silent reports whether a part of a network exists and does not answer.
func silent(r Reach) bool { return r.Address != "" && !r.Answers }

// saveCurrent copies the present configuration to beforeFile. If there is no configuration, the
// copy is empty.
func (w *Networker) saveCurrent() error {
	old, err := readBounded(filepath.Join(w.Dir, networkFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err = layout.WriteFile(filepath.Join(w.Dir, beforeFile), old, 0o600)
	return err
}

// revertUnconfirmed reverts the trial t at its end, if it is still under way.
func (w *Networker) revertUnconfirmed(t *trial) {
	w.changing.Lock()
	defer w.changing.Unlock()
	if w.trial != t {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	w.Log.Warn("the network was not confirmed and is taken back")
	if err := w.restoreSaved(ctx); err != nil {
		w.Log.Error("the network cannot be taken back", "error", err)
	}
}

// setTrial sets the trial that is under way; nil: none is. The caller holds changing.
func (w *Networker) setTrial(t *trial) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trial = t
}

// restoreSaved restores the configuration from before the trial. The caller holds changing.
func (w *Networker) restoreSaved(ctx context.Context) error {
	if w.trial != nil {
		w.trial.cancelTimers()
		w.setTrial(nil)
	}

	path := filepath.Join(w.Dir, networkFile)
	old, err := readBounded(filepath.Join(w.Dir, beforeFile))
	if err != nil {
		return err
	}

	if len(old) == 0 {
		err = os.Remove(path)
	} else {
		_, err = layout.WriteFile(path, old, 0o644)
	}

	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = w.Reload(ctx)
	}

	return errors.Join(err, os.Remove(filepath.Join(w.Dir, beforeFile)))
}

// Resume reverts a trial that a power cut interrupted, because nobody has confirmed it.
func (w *Networker) Resume(ctx context.Context) error {
	w.changing.Lock()
	defer w.changing.Unlock()
	if _, err := os.Stat(filepath.Join(w.Dir, beforeFile)); err != nil || w.trial != nil {
		return nil
	}
	return w.restoreSaved(ctx)
}

// Confirm keeps the configuration on trial.
func (w *Networker) Confirm() (Trial, error) {
	w.changing.Lock()
	defer w.changing.Unlock()
	if w.trial == nil {
		return Trial{}, fmt.Errorf("%w: nothing is being tried; it was taken back, perhaps", ErrState)
	}
	if err := os.Remove(filepath.Join(w.Dir, beforeFile)); err != nil {
		return Trial{}, err
	}
	w.trial.cancelTimers()
	w.setTrial(nil)
	return w.Look(), nil
}

// Revert restores the configuration from before the trial.
func (w *Networker) Revert(ctx context.Context) (Trial, error) {
	w.changing.Lock()
	defer w.changing.Unlock()
	if w.trial == nil {
		return w.Look(), nil
	}
	err := w.restoreSaved(ctx)
	return w.Look(), err
}

// Look returns the state of the trial. After Try the interface may need some time to get its
// addresses.
func (w *Networker) Look() Trial {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.trial == nil {
		return Trial{Addresses: addressesOf("", interfaces())}
	}
	return Trial{
		Active:    true,
		Until:     w.trial.until,
		Addresses: addressesOf(w.trial.iface, interfaces()),
		Reach:     w.trial.reach,
	}
}

// Close reverts an unconfirmed trial and stops the checks. Call it before the process ends.
func (w *Networker) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err := w.Revert(ctx)
	w.trying.Wait()
	return err
}

// addressesOf returns the addresses of one interface, or of all if name is "".
func addressesOf(name string, all []Interface) []string {
	list := []string{}
	for _, i := range all {
		if name == "" || name == i.Name {
			list = append(list, i.Addresses...)
		}
	}
	return list
}
