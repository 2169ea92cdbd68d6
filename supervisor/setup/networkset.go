package setup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"saltern/internal/pause"
	"saltern/supervisor/layout"
)

// Set applies a network permanently and waits until the machine has its address. It is for the
// network in answers that come with the machine, such as a cloud's user data: no person confirms
// such a network. Set ends a running trial.
func (w *Networker) Set(ctx context.Context, n Network) error {
	w.changing.Lock()
	defer w.changing.Unlock()
	if !w.Managed() {
		return errors.New("the network of this machine is managed elsewhere: " +
			"change it there, and leave it out of the answers")
	}

	if n.Interface == "" {
		var err error
		if n.Interface, err = likely(interfaces()); err != nil {
			return err
		}
	}

	if w.trial != nil {
		w.trial.cancelTimers()
		w.setTrial(nil)
	}

	if err := os.Remove(filepath.Join(w.Dir, beforeFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	if _, err := layout.WriteFile(filepath.Join(w.Dir, networkFile), networkText(n), 0o644); err != nil {
		return err
	}

	if err := w.Reload(ctx); err != nil {
		return err
	}

	want, err := netip.ParsePrefix(n.Address)
	if err != nil {
		return nil // with DHCP the preflight checks whether there is an address
	}

	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		for _, i := range interfaces() {
			if slices.ContainsFunc(i.Addresses,
				func(s string) bool { p, err := netip.ParsePrefix(s); return err == nil && p.Addr() == want.Addr() }) {
				return nil
			}
		}

		if pause.For(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("%s did not get the address %s", n.Interface, want.Addr())
		}
	}
}

// likely returns the interface to use if the answers name none: the only interface, or that of the
// default route.
func likely(all []Interface) (string, error) {
	if len(all) == 1 {
		return all[0].Name, nil
	}
	for _, i := range all {
		if i.Default {
			return i.Name, nil
		}
	}
	return "", fmt.Errorf("the machine has %d network interfaces; say which: network.interface", len(all))
}
