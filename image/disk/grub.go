package disk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// espID is the FAT volume number by which GRUB finds its files.
const espID = "5A17A991"

// grubDir is where Debian's grub-pc-bin and grub-efi-amd64-bin keep their files.
const grubDir = "/usr/lib/grub"

var grubModules = strings.Fields("part_gpt fat normal linux search search_fs_uuid configfile loadenv serial " +
	"terminal echo test minicmd halt reboot sleep")

// grubCfg is the configuration of GRUB, which chooses the slot to boot. The variable slot is the
// slot known to be good, next is the slot to try, and tries is how many tries are left. All three
// are variables of grubenv, which the system also changes, see package supervisor/upgrade. GRUB's
// language has no arithmetic, so a chain of ifs counts the tries down.
const grubCfg = `# Saltern
set timeout=2
set slot=a
load_env -f /grub/grubenv slot next tries
serial --unit=0 --speed=115200
terminal_input console serial
terminal_output console serial

set use=$slot
set flag=
if [ "$next" = a -o "$next" = b ]; then
	set left=
	if [ "$tries" = 3 ]; then set left=2; fi
	if [ "$tries" = 2 ]; then set left=1; fi
	if [ "$tries" = 1 ]; then set left=0; fi
	if [ -n "$left" ]; then
		set tries=$left
		set use=$next
		set flag=saltern.try
	else
		set next=
		set tries=
	fi
	save_env -f /grub/grubenv next tries
fi
set other=b
if [ "$use" = b ]; then set other=a; fi
set default=normal

function boot_slot {
	if [ "$1" = b ]; then set part=@B@; else set part=@A@; fi
	echo "Starting. The console appears here in about a minute."
	linux /$1/vmlinuz root=PARTUUID=$part rootfstype=squashfs ro @APPEND@ saltern.slot=$1 $2
	initrd /$1/initrd
}
menuentry "Saltern" --id normal { boot_slot $use $flag }
menuentry "Saltern, the other version ($other)" --id other { boot_slot $other }
menuentry "Factory reset: forget everything of this node" --id reset {
	echo "All settings, keys and data of this node will be erased in 30 seconds."
	echo "Switch off now to keep them."
	sleep 30
	boot_slot $use saltern.reset
}
`

// Append holds the kernel options that do not depend on the slot. A kernel that panics reboots, so
// that GRUB abandons a bad version after its tries. Only programs that request transparent huge
// pages get them, because such pages would waste memory in other programs.
const Append = "console=tty0 console=ttyS0,115200 panic=10 quiet loglevel=4 net.ifnames=1 " +
	"random.trust_cpu=on no_timer_check transparent_hugepage=madvise"

func config(a, b GUID, extra string) string {
	r := strings.NewReplacer("@A@", a.String(), "@B@", b.String(), "@APPEND@", strings.TrimSpace(Append+" "+extra))
	return r.Replace(grubCfg)
}

// makeGrub creates the boot loader's two programs and returns their paths: core for the BIOS, efi
// for UEFI. Both find their configuration by the volume number of the EFI system partition.
func (b *builder) makeGrub(ctx context.Context) (core, efi string, err error) {
	early := filepath.Join(b.work, "early.cfg")
	text := "search.fs_uuid " + espID[:4] + "-" + espID[4:] +
		" root\nset prefix=($root)/grub\nconfigfile /grub/grub.cfg\n"
	if err := os.WriteFile(early, []byte(text), 0o644); err != nil {
		return "", "", err
	}
	core, efi = filepath.Join(b.work, "core.img"), filepath.Join(b.work, "BOOTX64.EFI")
	make := func(format, out string, modules ...string) error {
		args := []string{"-O", format, "-c", early, "-p", "/grub", "-o", out}
		return b.runCommand(ctx, "grub-mkimage", append(append(args, modules...), grubModules...)...)
	}
	return core, efi, errors.Join(make("i386-pc", core, "biosdisk"), make("x86_64-efi", efi, "efi_gop", "efi_uga"))
}

// placeBIOS installs the boot code for the BIOS, whose first sector loads core.img from the sector
// lba. It does what grub-bios-setup would do (GRUB 2.06, util/setup.c): it writes the position of
// core.img at 0x5c of the boot sector, two NOPs at 0x66 so that the code trusts the BIOS's drive
// number, and the list of the following blocks at 0x1f4 of core.img's first sector.
func placeBIOS(disk *os.File, lba uint64, maxSectors uint64, core []byte) error {
	boot, err := os.ReadFile(filepath.Join(grubDir, "i386-pc/boot.img"))
	if err != nil {
		return err
	}

	sectors := (uint64(len(core)) + Sector - 1) / Sector
	if len(boot) < 440 || len(core) < Sector || sectors > maxSectors || sectors > 0xffff {
		return fmt.Errorf("GRUB's core has %d bytes, which do not fit", len(core))
	}

	binary.LittleEndian.PutUint64(boot[0x5c:], lba)
	boot[0x66], boot[0x67] = 0x90, 0x90
	binary.LittleEndian.PutUint64(core[0x1f4:], lba+1)
	binary.LittleEndian.PutUint16(core[0x1fc:], uint16(sectors-1))
	binary.LittleEndian.PutUint16(core[0x1fe:], 0x820)
	_, err1 := disk.WriteAt(boot[:440], 0)
	_, err2 := disk.WriteAt(core, int64(lba*Sector))

	return errors.Join(err1, err2)
}
