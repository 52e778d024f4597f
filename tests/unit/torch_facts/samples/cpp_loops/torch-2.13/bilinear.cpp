#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const float* in_ptr0,
                       float* out_ptr0)
{
    std::atomic<int> inductor_cpu_integer_div_error{0};
    inductor_cpu_integer_div_error_flag = &inductor_cpu_integer_div_error;
    #pragma omp parallel
    {
        int tid = omp_get_thread_num();
        {
            #pragma omp for
            for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(20L); x0+=static_cast<int64_t>(1L))
            {
                #pragma GCC ivdep
                for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(200L); x1+=static_cast<int64_t>(1L))
                {
                    for(int64_t x2=static_cast<int64_t>(0L); x2<static_cast<int64_t>(200L); x2+=static_cast<int64_t>(4L))
                    {
                        {
                            if(C10_LIKELY(x2 >= static_cast<int64_t>(0) && x2 < static_cast<int64_t>(200L)))
                            {
                                auto tmp0 = x1;
                                auto tmp1 = c10::convert<float>(tmp0);
                                auto tmp2 = static_cast<float>(0.5);
                                auto tmp3 = float(tmp1 + tmp2);
                                auto tmp4 = static_cast<float>(2.0);
                                auto tmp5 = float(tmp3 * tmp4);
                                auto tmp6 = float(tmp5 - tmp2);
                                auto tmp7 = static_cast<float>(0.0);
                                auto tmp8 = max_propagate_nan(tmp6, tmp7);
                                auto tmp9 = c10::convert<int64_t>(tmp8);
                                auto tmp10 = x2;
                                auto tmp11 = c10::convert<float>(tmp10);
                                auto tmp12 = at::vec::Vectorized<float>::arange(tmp11, 1);
                                auto tmp13 = at::vec::Vectorized<float>(tmp2);
                                auto tmp14 = tmp12 + tmp13;
                                auto tmp15 = at::vec::Vectorized<float>(tmp4);
                                auto tmp16 = tmp14 * tmp15;
                                auto tmp17 = tmp16 - tmp13;
                                auto tmp18 = at::vec::Vectorized<float>(tmp7);
                                auto tmp19 = at::vec::maximum(tmp17, tmp18);
                                auto tmp20 = at::vec::convert<int64_t,2,float,1>(tmp19);
                                auto tmp21 =
                                [&]
                                {
                                    __at_align__ std::array<int64_t, 4> tmpbuf;
                                    tmp20.store(tmpbuf.data(), static_cast<int64_t>(4));
                                    return tmpbuf;
                                }
                                ()
                                ;
                                auto tmp22 =
                                [&]
                                {
                                    __at_align__ std::array<float, 4> tmpbuf;
                                    #pragma GCC unroll 4
                                    for (long x2_inner = 0; x2_inner < static_cast<int64_t>(4); x2_inner++)
                                    {
                                        tmpbuf[x2_inner] = in_ptr0[static_cast<int64_t>(tmp21[x2_inner] + 400L*tmp9 + 160000L*x0)];
                                    }
                                    return at::vec::Vectorized<float>::loadu(tmpbuf.data(), static_cast<int64_t>(4));
                                }
                                ()
                                ;
                                auto tmp23 = static_cast<int64_t>(1);
                                auto tmp24 = at::vec::VectorizedN<int64_t,2>(tmp23);
                                auto tmp25 = tmp20 + tmp24;
                                auto tmp26 = static_cast<int64_t>(399);
                                auto tmp27 = at::vec::VectorizedN<int64_t,2>(tmp26);
                                auto tmp28 = at::vec::minimum(tmp25, tmp27);
                                auto tmp29 =
                                [&]
                                {
                                    __at_align__ std::array<int64_t, 4> tmpbuf;
                                    tmp28.store(tmpbuf.data(), static_cast<int64_t>(4));
                                    return tmpbuf;
                                }
                                ()
                                ;
                                auto tmp30 =
                                [&]
                                {
                                    __at_align__ std::array<float, 4> tmpbuf;
                                    #pragma GCC unroll 4
                                    for (long x2_inner = 0; x2_inner < static_cast<int64_t>(4); x2_inner++)
                                    {
                                        tmpbuf[x2_inner] = in_ptr0[static_cast<int64_t>(tmp29[x2_inner] + 400L*tmp9 + 160000L*x0)];
                                    }
                                    return at::vec::Vectorized<float>::loadu(tmpbuf.data(), static_cast<int64_t>(4));
                                }
                                ()
                                ;
                                auto tmp31 = tmp30 - tmp22;
                                auto tmp32 = at::vec::convert<float,1,int64_t,2>(tmp20);
                                auto tmp33 = tmp19 - tmp32;
                                auto tmp34 = at::vec::maximum(tmp33, tmp18);
                                auto tmp35 = static_cast<float>(1.0);
                                auto tmp36 = at::vec::Vectorized<float>(tmp35);
                                auto tmp37 = at::vec::minimum(tmp34, tmp36);
                                auto tmp38 = tmp31 * tmp37;
                                auto tmp39 = tmp22 + tmp38;
                                auto tmp40 = int64_t(tmp9 + tmp23);
                                auto tmp41 = min_propagate_nan(tmp40, tmp26);
                                auto tmp42 =
                                [&]
                                {
                                    __at_align__ std::array<float, 4> tmpbuf;
                                    #pragma GCC unroll 4
                                    for (long x2_inner = 0; x2_inner < static_cast<int64_t>(4); x2_inner++)
                                    {
                                        tmpbuf[x2_inner] = in_ptr0[static_cast<int64_t>(tmp21[x2_inner] + 400L*tmp41 + 160000L*x0)];
                                    }
                                    return at::vec::Vectorized<float>::loadu(tmpbuf.data(), static_cast<int64_t>(4));
                                }
                                ()
                                ;
                                auto tmp43 =
                                [&]
                                {
                                    __at_align__ std::array<float, 4> tmpbuf;
                                    #pragma GCC unroll 4
                                    for (long x2_inner = 0; x2_inner < static_cast<int64_t>(4); x2_inner++)
                                    {
                                        tmpbuf[x2_inner] = in_ptr0[static_cast<int64_t>(tmp29[x2_inner] + 400L*tmp41 + 160000L*x0)];
                                    }
                                    return at::vec::Vectorized<float>::loadu(tmpbuf.data(), static_cast<int64_t>(4));
                                }
                                ()
                                ;
                                auto tmp44 = tmp43 - tmp42;
                                auto tmp45 = tmp44 * tmp37;
                                auto tmp46 = tmp42 + tmp45;
                                auto tmp47 = tmp46 - tmp39;
                                auto tmp48 = c10::convert<float>(tmp9);
                                auto tmp49 = float(tmp8 - tmp48);
                                auto tmp50 = max_propagate_nan(tmp49, tmp7);
                                auto tmp51 = min_propagate_nan(tmp50, tmp35);
                                auto tmp52 = at::vec::Vectorized<float>(tmp51);
                                auto tmp53 = tmp47 * tmp52;
                                auto tmp54 = tmp39 + tmp53;
                                tmp54.store(out_ptr0 + static_cast<int64_t>(x2 + 200L*x1 + 40000L*x0));
                            }
                        }
                    }
                }
            }
        }
    }
    inductor_cpu_integer_div_error_flag = nullptr;
    inductor_cpu_throw_if_integer_div_error(inductor_cpu_integer_div_error);
}
