// SPDX-License-Identifier: Apache-2.0
// run: compiled where CMake finds NCCL's header. Sizes, enumerators and functions of nccl_api.h are
// those of nccl.h.
#include <nccl.h>

#include "same_call.h"

extern "C" {
#include "comm/nccl_api.h"
}

namespace {

static_assert(same<decltype(ot_nccl_api::version), decltype(&ncclGetVersion)>);
static_assert(same<decltype(ot_nccl_api::make_id), decltype(&ncclGetUniqueId)>);
static_assert(same<decltype(ot_nccl_api::create), decltype(&ncclCommInitRank)>);
static_assert(same<decltype(ot_nccl_api::begin), decltype(&ncclGroupStart)>);
static_assert(same<decltype(ot_nccl_api::end), decltype(&ncclGroupEnd)>);
static_assert(same<decltype(ot_nccl_api::send), decltype(&ncclSend)>);
static_assert(same<decltype(ot_nccl_api::receive), decltype(&ncclRecv)>);
static_assert(same<decltype(ot_nccl_api::all_gather), decltype(&ncclAllGather)>);
static_assert(same<decltype(ot_nccl_api::failure), decltype(&ncclCommGetAsyncError)>);
static_assert(same<decltype(ot_nccl_api::finalize), decltype(&ncclCommFinalize)>);
static_assert(same<decltype(ot_nccl_api::destroy), decltype(&ncclCommDestroy)>);
static_assert(same<decltype(ot_nccl_api::abort), decltype(&ncclCommAbort)>);
static_assert(same<decltype(ot_nccl_api::describe), decltype(&ncclGetErrorString)>);
static_assert(same<decltype(ot_nccl_api::last_error), decltype(&ncclGetLastError)>);

static_assert(sizeof(ot_nccl_id) == sizeof(ncclUniqueId));
static_assert(alignof(ot_nccl_id) == alignof(ncclUniqueId));

static_assert(ncclSuccess == 0);
static_assert(OT_NCCL_SYSTEM_ERROR == static_cast<int>(ncclSystemError));
static_assert(OT_NCCL_INVALID_ARGUMENT == static_cast<int>(ncclInvalidArgument));
static_assert(OT_NCCL_INVALID_USAGE == static_cast<int>(ncclInvalidUsage));
static_assert(OT_NCCL_REMOTE_ERROR == static_cast<int>(ncclRemoteError));
static_assert(OT_NCCL_IN_PROGRESS == static_cast<int>(ncclInProgress));
static_assert(OT_NCCL_UINT8 == static_cast<int>(ncclUint8));
static_assert(OT_NCCL_OLDEST == NCCL_VERSION(2, 14, 3));

}  // namespace
