// Package image holds the packages that build the appliance's disk images, without loop devices and
// mounts:
//
//	profile   what is in an image, as data: packages, files, units, kernels
//	tree      packages and files to a directory that systemd can boot
//	disk      a directory to a disk that boots by BIOS and by UEFI
//	ova       a disk to an archive for VMware and VirtualBox
//	ami       a disk to a snapshot in EC2
//	bundle    a signed new version of the system, for nodes that run
//	sbom      the list of an image's components
//	grubenv   the variables that boot loader and system share
//
// Two builds from the same packages and programs give the same bytes: times
// come from SOURCE_DATE_EPOCH, identifiers from names.
package image
