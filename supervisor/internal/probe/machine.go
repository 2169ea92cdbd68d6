package probe

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"saltern/supervisor/keyuse"
)

// Machine holds facts that identify a machine, unhashed; see [keyuse.Kind].
type Machine map[keyuse.Kind]string

// LookAtMachine returns the facts about this machine, read below root ("" or "/"). dataDir is the
// node's data directory, address the node's address. It omits facts that cannot be read.
func LookAtMachine(root, dataDir, address string) Machine {
	m := Machine{
		keyuse.MachineID: firstLine(filepath.Join(root, "etc/machine-id")),
		keyuse.Board:     boardUUID(root),
		keyuse.Disk:      diskSerial(root, dataDir),
		keyuse.Cards:     cardAddresses(root, address),
	}
	if m[keyuse.MachineID] == "uninitialized" { // not set before the first boot is complete: machine-id(5)
		m[keyuse.MachineID] = ""
	}

	for kind, fact := range m {
		if fact == "" {
			delete(m, kind)
		}
	}

	return m
}

// Facts returns digests of the facts. They are valid only for the node whose certificate has that
// hash.
func (m Machine) Facts(certificate string) keyuse.Facts {
	facts := keyuse.Facts{}
	for kind, fact := range m {
		facts[kind] = keyuse.Digest(certificate, kind, fact)
	}
	return facts
}

// firstLine returns the first line of a small file, or "" if it cannot be read.
func firstLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.Trim(line, " \t\x00")
}

// sameForMany lists the UUIDs of firmware whose maker assigned none.
var sameForMany = []string{"", "00000000-0000-0000-0000-000000000000",
	"ffffffff-ffff-ffff-ffff-ffffffffffff", "03000200-0400-0500-0006-000700080009"}

// boardUUID returns the firmware's UUID of the machine (SMBIOS, System Information), or "".
func boardUUID(root string) string {
	uuid := strings.ToLower(firstLine(filepath.Join(root, DMI, "product_uuid")))
	if slices.Contains(sameForMany, uuid) {
		return ""
	}
	return uuid
}

// diskSerial returns the serial number of the disk that holds dir. If the disk has no serial
// number, or the file system is not on a single disk, it returns "".
func diskSerial(root, dir string) string {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return ""
	}

	number := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	disk, err := filepath.EvalSymlinks(filepath.Join(root, "sys/dev/block", number))
	if err != nil {
		return ""
	}

	if _, err := os.Stat(filepath.Join(disk, "partition")); err == nil {
		disk = filepath.Dir(disk)
	}

	for _, name := range []string{"serial", "device/serial", "wwid", "device/wwid"} {
		if serial := firstLine(filepath.Join(disk, name)); serial != "" && !everyonesSerial.MatchString(serial) {
			return serial
		}
	}

	return ""
}

// everyonesSerial matches serial numbers that hypervisors assign to the disks of every machine,
// even of copies: QEMU's (hw/ide/core.c), and Proxmox's drive names.
var everyonesSerial = regexp.MustCompile(`(^|[^0-9A-Za-z])(QM[0-9]{5}|drive-[a-z]+[0-9]+)$`)

// cardAddresses returns the hardware addresses of the network cards that are real devices. If the
// machine has none, as in a container, it returns the address of the interface with the node's
// address.
func cardAddresses(root, address string) string {
	interfaces, err := net.Interfaces()
	if err != nil {
		return ""
	}

	var devices []string
	holder := ""
	for _, i := range interfaces {
		if len(i.HardwareAddr) == 0 {
			continue
		}

		if _, err := os.Stat(filepath.Join(root, "sys/class/net", i.Name, "device")); err == nil {
			devices = append(devices, i.HardwareAddr.String())
		}

		if own, err := i.Addrs(); err == nil &&
			slices.ContainsFunc(own, func(a net.Addr) bool { return addressOf(a).Addr().String() == address }) {
			holder = i.HardwareAddr.String()
		}
	}

	if len(devices) == 0 {
		return holder
	}

	slices.Sort(devices)
	return strings.Join(slices.Compact(devices), " ")
}

// HasAddress reports whether this machine has an address. If the loopback interface has a network,
// the machine has all addresses of that network (ip-address(8)).
func HasAddress(address string) (bool, error) {
	want, err := netip.ParseAddr(address)
	if err != nil {
		return false, err
	}

	want = want.Unmap()
	own, err := net.InterfaceAddrs() // one request to the kernel suffices in most cases
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(own, func(a net.Addr) bool { return addressOf(a).Addr() == want }) {
		return true, nil
	}

	interfaces, err := net.Interfaces()
	if err != nil {
		return false, err
	}

	for _, i := range interfaces {
		if i.Flags&net.FlagLoopback == 0 {
			continue
		}

		networks, err := i.Addrs()
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(networks, func(a net.Addr) bool { return addressOf(a).Masked().Contains(want) }) {
			return true, nil
		}
	}

	return false, nil
}

// Announce causes the other machines of an IPv4 network to update the hardware address that they
// have for address. It sends a packet to an unknown neighbour. To find that neighbour the kernel
// broadcasts an ARP request, which contains this machine's hardware address. Each machine that
// receives the request records that address (RFC 826). On a network without an unused address
// Announce returns an error. For IPv6 it does nothing, because the kernel does not use an address
// that another machine has (RFC 4862, 5.4).
func Announce(address string) error {
	own, err := netip.ParseAddr(address)
	if err != nil || !own.Is4() {
		return err
	}

	network, err := networkOf(own)
	if err != nil || !network.IsValid() || network.Bits() > 30 {
		return err
	}

	conn, err := net.DialUDP("udp4", &net.UDPAddr{IP: own.AsSlice()},
		net.UDPAddrFromAddrPort(netip.AddrPortFrom(randomAddress(network, own), discardPort)))
	if err != nil {
		return fmt.Errorf("announce %s on its network: %w", address, err)
	}
	defer conn.Close()

	if _, err := conn.Write([]byte{0}); err != nil {
		return fmt.Errorf("announce %s on its network: %w", address, err)
	}

	return nil
}

// discardPort is the port of the discard service, which never answers (RFC 863).
const discardPort = 9

// networkOf returns the network to which an address of this machine belongs, or a zero Prefix if
// the machine does not have the address.
func networkOf(address netip.Addr) (netip.Prefix, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Prefix{}, err
	}
	for _, a := range list {
		if p := addressOf(a); p.Addr() == address && p.Bits() < address.BitLen() {
			return p.Masked(), nil
		}
	}
	return netip.Prefix{}, nil
}

// randomAddress returns a random address in network. The result is not nodeAddress, not the
// network's address and not its broadcast address.
func randomAddress(network netip.Prefix, nodeAddress netip.Addr) netip.Addr {
	base := network.Addr().As4()
	hosts := uint32(1)<<(32-network.Bits()) - 2
	for {
		number := binary.BigEndian.Uint32(base[:]) + 1 + rand.Uint32N(hosts)
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], number)
		if a := netip.AddrFrom4(b); a != nodeAddress {
			return a
		}
	}
}

// addressOf returns an interface's address with its network. For an address of another type it
// returns the zero Prefix.
func addressOf(a net.Addr) netip.Prefix {
	n, ok := a.(*net.IPNet)
	if !ok {
		return netip.Prefix{}
	}
	ip, _ := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(ip.Unmap(), ones)
}
