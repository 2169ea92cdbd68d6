package probe

import (
	"context"
	"errors"
	"fmt"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// ClockSynchronised reports whether a time service synchronises the clock. It asks the kernel
// (adjtimex(2), STA_UNSYNC). If this process may not ask the kernel (ProtectClock=), it asks
// systemd's time service over D-Bus. The answer may take a while, because systemd first starts that
// service. An error means that the state is not known.
func ClockSynchronised(ctx context.Context) (bool, error) {
	var tx unix.Timex
	state, err := unix.Adjtimex(&tx)
	switch {
	case errors.Is(err, unix.EPERM):
		return timeService(ctx)
	case err != nil:
		return false, fmt.Errorf("adjtimex: %w", err)
	}
	return state != unix.TIME_ERROR && tx.Status&unix.STA_UNSYNC == 0, nil
}

// timeService asks systemd-timedated whether the clock is synchronised, see
// org.freedesktop.timedate1(5).
func timeService(ctx context.Context) (bool, error) {
	c, err := dbus.ConnectSystemBus(dbus.WithContext(ctx))
	if err != nil {
		return false, fmt.Errorf("clock: reach D-Bus: %w", err)
	}
	defer c.Close()
	var yes bool
	err = c.Object("org.freedesktop.timedate1", "/org/freedesktop/timedate1").
		CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, "org.freedesktop.timedate1",
			"NTPSynchronized").Store(&yes)
	if err != nil {
		return false, fmt.Errorf("clock: ask systemd-timedated: %w", err)
	}
	return yes, nil
}
