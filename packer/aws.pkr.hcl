# An AMI through a helper instance: it writes the raw disk of `make image
# FORMATS=raw` to an empty volume, which becomes the image's snapshot. Where
# the EBS direct APIs may be used, `saltern-image ami` needs no instance, and
# makes an AMI that starts by UEFI and serves metadata by IMDSv2 only; with this
# template remove the two marks #1.7 below for the same (Packer from 1.7 on).
#
#   zstd dist/saltern-cloud.raw                 validate wants the file, too
#   packer init packer/plugins.pkr.hcl          from 1.7 on
#   packer validate packer/aws.pkr.hcl
#   packer build -var region=eu-central-1 packer/aws.pkr.hcl

variable "region" {
  type    = string
  default = "eu-central-1"
}

variable "disk" {
  type        = string
  description = "raw disk, compressed by zstd (default: dist/saltern-cloud.raw.zst of this checkout)"
  default     = ""
}

variable "name" {
  type    = string
  default = "saltern"
}

variable "volume_size" {
  type    = number
  default = 8
}

source "amazon-ebssurrogate" "saltern" {
  region                  = var.region
  instance_type           = "t3.small"
  ami_name                = var.name
  ami_description         = "A node of a highly available Salt master"
  ami_virtualization_type = "hvm"
  ena_support             = true
  #1.7 boot_mode          = "uefi-preferred"
  #1.7 imds_support       = "v2.0"
  ssh_username = "admin"

  source_ami_filter {
    filters = {
      name                = "debian-12-amd64-*"
      root-device-type    = "ebs"
      virtualization-type = "hvm"
    }
    owners      = ["136693071363"]
    most_recent = true
  }

  launch_block_device_mappings {
    device_name           = "/dev/xvdf"
    volume_size           = var.volume_size
    volume_type           = "gp2"
    delete_on_termination = true
  }

  ami_root_device {
    source_device_name    = "/dev/xvdf"
    device_name           = "/dev/xvda"
    volume_size           = var.volume_size
    volume_type           = "gp3"
    delete_on_termination = true
  }
}

build {
  sources = ["source.amazon-ebssurrogate.saltern"]

  provisioner "file" {
    source      = var.disk != "" ? var.disk : "${path.root}/../dist/saltern-cloud.raw.zst"
    destination = "/tmp/disk.zst"
  }

  provisioner "shell" {
    inline = [
      "sudo apt-get -q update && sudo apt-get -qy install zstd",
      "disk=/dev/xvdf; [ -e $disk ] || disk=/dev/nvme1n1",
      "zstd -dc /tmp/disk.zst | sudo dd of=$disk bs=1M conv=sparse,fsync",
    ]
  }
}
